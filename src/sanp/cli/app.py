"""The ``sanp`` command: its commands by name, its own options, and how an error is printed."""

import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated

import typer
from rich.text import Text

from sanp.cli.bench import bench
from sanp.cli.compare import compare
from sanp.cli.console import console, make_console, plain
from sanp.cli.data import data_app
from sanp.cli.eval import evaluate_run
from sanp.cli.explore import explore
from sanp.cli.inspect import inspect
from sanp.cli.onnx import export
from sanp.cli.predict import predict
from sanp.cli.presets import presets
from sanp.cli.report import report
from sanp.cli.reproduce import reproduce
from sanp.cli.train import train
from sanp.core import distributed
from sanp.core.errors import SanpError

COMMANDS: dict[str, Callable[..., None]] = {
    "bench": bench,
    "compare": compare,
    "explore": explore,
    "export": export,
    "predict": predict,
    "report": report,
    "reproduce": reproduce,
    "inspect": inspect,
    "train": train,
    "eval": evaluate_run,
    "presets": presets,
}
"""in the order of the help"""

app = typer.Typer(help="The command line of sanp.", no_args_is_help=True, add_completion=False)
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(data_app, name="data")
_debug = {"on": False}


def _version(wanted: bool) -> None:
    if wanted:
        python = platform.python_version()
        sys.stdout.write(f"sanp {metadata.version('sanp')}, torch {metadata.version('torch')}, Python {python}\n")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, help="Show the versions and exit.")] = False,
) -> None:
    """The options of ``sanp`` itself, before the name of a command."""
    _debug["on"] = debug


def main() -> None:
    """Runs the command line; an error that the user can mend is one line, and the exit code is 2."""
    speaks = True
    try:
        with distributed.joined():
            speaks = distributed.rank() == 0
            console.quiet = not speaks
            app()
    except SanpError as error:
        if _debug["on"]:
            raise
        if speaks or isinstance(error, distributed.RankLost):  # else the first process says the same
            _say(error)
        sys.exit(2)
    except OSError as error:
        if _debug["on"]:
            raise
        _say(f"{error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(2)


def _say(error: object) -> None:
    """Prints an error as one line."""
    line = Text.assemble(("error:", "red"), " ", plain(" ".join(str(error).split())))
    make_console(stderr=True).print(line, soft_wrap=True)
