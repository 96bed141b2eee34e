"""`sanp methods`: the pruning methods by name, and the settings of one."""

import sys
from dataclasses import fields
from typing import Annotated

import typer

from sanp.cli.console import console, hanging
from sanp.core.errors import unknown_name
from sanp.experiments.settings import default_of, help_texts


def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to see its settings.")] = None,
) -> None:
    """List the pruning methods, or show the settings of one."""
    from sanp.methods import METHODS, config_of
    from sanp.spm.module import SPMConfig

    if name is None:
        for each in METHODS:
            console.print(hanging(each, said_of(each), indent=14, width=console.width), soft_wrap=True)
        console.print("\nsanp methods NAME shows the settings of one; sanp train --method NAME uses it.")
        return
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    config = SPMConfig if name == "sanp" else config_of(name)
    section = "spm" if name == "sanp" else name
    console.print(f"{name}: {said_of(name)}\n", soft_wrap=True)
    if config is None:
        console.print("It has no settings of its own; those of training are in sanp train --help-all.")
        return
    for field in fields(config):
        default = default_of(field)
        text = f"{help_texts(config)[field.name]} (default: {'none' if default is None else default})"
        option = f"--{section}.{field.name.replace('_', '-')}"
        console.print(hanging(option, text, indent=26, width=console.width), soft_wrap=True)


def said_of(name: str) -> str:
    """The first sentence of the file that has the method."""
    from sanp.methods import METHODS

    text = str(sys.modules[type(METHODS[name]).__module__].__doc__).partition("\n\n")[0]
    return " ".join(text.split())
