"""What a room uses of a room that comes after it: listed here, and loaded when it is first needed."""

from importlib import import_module
from typing import Any

LATER = {
    "compiled costs": ("sanp.engine.level_costs", "compiled_costs"),
    "compiled kept": ("sanp.engine.level_costs", "compiled_kept"),
}
"""by what it is for: the module and the name in it"""


def later(what: str) -> Any:
    """The thing that :data:`LATER` lists under ``what``."""
    module, name = LATER[what]
    return getattr(import_module(module), name)
