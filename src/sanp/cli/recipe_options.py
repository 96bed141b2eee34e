"""An option of the command line for every setting of a recipe, made from the recipe's dataclasses."""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from sanp.experiments.run_settings import RunSettings
from sanp.experiments.settings import default_of, help_texts, kinds, value_from_text

COMMON = (
    "data backbone weights method budget max_flops preset seed batch_size image_size resize augment validate "
    "pretrained device"
).split()
"""settings of the recipe itself that ``--help`` shows; ``--help-all`` shows the others and those of the sections"""


@dataclass(frozen=True, kw_only=True)
class RecipeSetting:
    """A setting of a recipe, and the option that sets it."""

    config: Any
    """the dataclass that the setting is a field of"""
    section: str
    """the section of this dataclass, or empty for a setting of the recipe itself"""
    name: str
    default: Any

    @property
    def option(self) -> str:
        """As it is written on the command line: ``--batch-size``, ``--fit.lr``."""
        dashed = self.name.replace("_", "-")
        return f"--{dashed}" if self.section == "" else f"--{self.section}.{dashed}"

    @property
    def argument(self) -> str:
        """The name of the argument that a command gets the option's text in."""
        return f"set_{self.section}_{self.name}"

    def parameter(self) -> inspect.Parameter:
        """The argument as a part of a signature, from which typer makes the option and its help."""
        panel = "The run" if self.section == "" else f"Section {self.section}: {self._section_help()}"
        shown = "" if self.default is None else f" (default: {self.default})"
        option = typer.Option(
            self.option,
            help=f"{help_texts(self.config)[self.name]}{shown}",
            rich_help_panel=panel,
            show_default=False,
            metavar="VALUE",
            hidden=self.section != "" or self.name not in COMMON,
        )
        kind = Annotated[str | None, option]
        return inspect.Parameter(self.argument, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)

    def _section_help(self) -> str:
        """The line under the recipe's field; for a method's section what its class says of itself."""
        from sanp.experiments.recipe import Recipe

        return help_texts(Recipe).get(self.section) or str(self.config.__doc__).partition("\n")[0].rstrip(".")

    def read(self, text: str) -> dict[str, Any]:
        """A recipe with this setting alone, from the option's text."""
        value = value_from_text(text, kinds(self.config)[self.name], self.option)
        return {self.name: value} if self.section == "" else {self.section: {self.name: value}}


def show_all(context: typer.Context, wanted: bool) -> None:
    """What ``--help-all`` does: shows the help with every option in it, and ends."""
    if wanted:
        for parameter in context.command.params:
            if hasattr(parameter, "hidden"):
                parameter.hidden = False
        sys.stdout.write(context.get_help() + "\n")
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        callback=show_all,
        is_eager=True,
        help="Show every setting, of all methods too.",
    ),
]


def all_settings() -> list[RecipeSetting]:
    """Every setting of a recipe, then those of its sections and of the methods."""
    from sanp.experiments.recipe import sections

    found = plain_settings()
    for section, config in sections().items():
        found += _settings_of(config, section)
    return found


def plain_settings() -> list[RecipeSetting]:
    """The settings of a recipe that are in no section, among them all that ``--help`` shows; they need no torch."""
    return _settings_of(RunSettings, "")


def _settings_of(config: Any, section: str) -> list[RecipeSetting]:
    return [
        RecipeSetting(config=config, section=section, name=field.name, default=default_of(field))
        for field in fields(config)
    ]


def with_recipe_options(command: Callable[..., None], offered: Sequence[RecipeSetting]) -> Callable[..., None]:
    """Gives a command an option for every setting in ``offered``.

    The command takes an argument ``settings``: a nested dict, as a recipe file has it, of the options that were used.
    """
    own = [parameter for name, parameter in inspect.signature(command).parameters.items() if name != "settings"]

    def filled(**given: Any) -> None:
        from sanp.experiments.recipe import merge

        settings: dict[str, Any] = {}
        for setting in offered:
            text = given.pop(setting.argument)
            if text is not None:
                settings = merge(settings, setting.read(text))
        command(**given, settings=settings)

    parameters = own + [setting.parameter() for setting in offered]
    filled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    filled.__doc__ = command.__doc__
    filled.__name__ = command.__name__
    return filled
