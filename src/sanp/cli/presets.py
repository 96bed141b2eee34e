"""`sanp presets`: the named sets of settings that a recipe can start from."""

from sanp.cli.console import console


def presets() -> None:
    """Show what the presets change from the defaults."""
    from sanp.experiments.recipe import PRESETS

    for name, settings in PRESETS.items():
        console.print(name, settings or "the defaults")
