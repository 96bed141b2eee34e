"""The arguments of a call in the order of the network's own forward, however they were given."""

import inspect
from typing import Any

from torch import nn

from sanp.core.errors import SanpError


def in_order(network: nn.Module, example: Any) -> Any:
    """The example with its keywords, and every dictionary in it, in the order that :func:`bound` gives."""
    if not isinstance(example, dict):
        return _sorted(example)
    keywords = {name: _sorted(example[name]) for name in bound(network, (), example) if name in example}
    return keywords | {name: _sorted(value) for name, value in sorted(example.items()) if name not in keywords}


def bound(network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call by name, defaults of those left out too, in the order of the network's own forward."""
    try:
        found = _signature(network).bind(*args, **kwargs)
    except TypeError as error:
        raise SanpError(f"the arguments do not fit ({error}): call the compiled network like the network") from error
    found.apply_defaults()
    return {name: _sorted(value) for name, value in found.arguments.items()}


def _sorted(value: Any) -> Any:
    """The same with its dictionaries sorted by key, for the order in which they were filled means nothing."""
    if type(value) is dict:
        return {key: _sorted(value[key]) for key in sorted(value, key=str)}
    return type(value)(map(_sorted, value)) if type(value) in (list, tuple) else value


def _signature(network: nn.Module) -> inspect.Signature:
    """The signature of the forward; of the inner network's where a wrapper takes anything and passes it on."""
    anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    while True:
        found = inspect.signature(network.forward)
        inner = getattr(network, "net", None)
        if not isinstance(inner, nn.Module) or any(p.kind not in anything for p in found.parameters.values()):
            return found
        network = inner
