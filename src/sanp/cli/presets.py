"""`sanp presets`: the named sets of settings that a recipe can start from."""

from sanp.cli.console import console
from sanp.experiments.recipe import PRESETS


def presets() -> None:
    """Show what the presets change from the defaults."""
    for name, settings in PRESETS.items():
        console.print(name, settings or "the defaults")
