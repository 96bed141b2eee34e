"""The commands by name: the module that has each, and the line that ``sanp --help`` shows, without loading any."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command of the command line."""

    home: str
    """``module:name`` in the room ``cli``: a function, or for a group of commands a typer app"""
    help: str
    """a line of what it does"""
    group: bool = False
    """it has commands of its own"""
    takes_settings: bool = False
    """it has an option for every setting of a recipe"""

    def load(self, *, for_help: bool = False) -> Any:
        """The function or the app itself; ``for_help`` leaves out options that ``--help`` does not show.

        So a help page waits for nothing that a network needs: no module of a command loads torch by being imported.
        """
        module, _, name = self.home.partition(":")
        loaded = getattr(import_module(f"sanp.cli.{module}"), name)
        if not self.takes_settings:
            return loaded
        from sanp.cli.recipe_options import all_settings, plain_settings, with_recipe_options

        return with_recipe_options(loaded, plain_settings() if for_help else all_settings())


COMMANDS: dict[str, Command] = {
    "train": Command(home="train:train_run", help="Train a network and prune it to a budget.", takes_settings=True),
    "eval": Command(home="eval:evaluate_run", help="Evaluate a run's network: accuracy, FLOPs, layers."),
    "predict": Command(home="predict:predict", help="Classify image files."),
    "report": Command(home="report:report", help="Make a page that shows what a network learned to skip."),
    "explore": Command(home="explore:explore", help="Open a local page to try images and budgets on a run."),
    "export": Command(home="onnx:export_run", help="Write a run's network as an ONNX file that skips channels."),
    "bench": Command(home="bench:bench_network", help="Time a network at several costs, beside dense runtimes."),
    "inspect": Command(home="inspect:inspect", help="Show what gating a network would do."),
    "compare": Command(home="compare:compare_methods", help="Compare methods in one table."),
    "reproduce": Command(home="reproduce:reproduce_paper", help="Make the paper's tables and figures again."),
    "data": Command(home="data:data_app", help="Data sets: what there is, fetching and checking.", group=True),
    "methods": Command(home="methods:methods", help="List the pruning methods, or the settings of one."),
    "presets": Command(home="presets:presets", help="Show what the presets change from the defaults."),
}
"""in the order of the help"""
