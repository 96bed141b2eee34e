"""The ``sanp`` command: its commands by name, its own options, and how an error is printed."""

import platform
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Annotated

import typer
from rich.text import Text

from sanp.cli.commands import COMMANDS
from sanp.cli.console import console, make_console, plain
from sanp.cli.streams import flush_output, prepare_streams
from sanp.core.errors import SanpError
from sanp.core.limits import LONGEST_ERROR

HELP = "--help"
_debug = {"on": False}


def _version(wanted: bool) -> None:
    if wanted:
        python = platform.python_version()
        sys.stdout.write(f"sanp {metadata.version('sanp')}, torch {metadata.version('torch')}, Python {python}\n")
        raise typer.Exit


def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, help="Show the versions and exit.")] = False,
) -> None:
    """The options of ``sanp`` itself, before the name of a command."""
    _debug["on"] = debug


def make_app(arguments: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: of the command that they name everything, of the others name and help.

    So no command waits for the packages that another one needs.
    """
    app = typer.Typer(
        help="Self-Adaptive Network Pruning: a network computes only the channels that an image needs.",
        no_args_is_help=True,
        add_completion=False,
    )
    app.callback()(options)
    wanted = next((each for each in arguments if not each.startswith("-")), None)
    for name, command in COMMANDS.items():
        if name != wanted:
            app.command(name, help=command.help)(_nothing)
        elif command.group:
            app.add_typer(command.load(), name=name)
        else:
            app.command(name)(command.load(for_help=HELP in arguments))
    return app


def _nothing() -> None:
    """Stands for a command that is not called."""


def main() -> None:
    """Runs the command line; an error that the user can mend is one line, and the exit code is 2."""
    prepare_streams()
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if (why := flush_output()) is not None:
            _say(f"the output cannot be written ({why}): make room, or send it elsewhere")
            sys.exit(2)


def _run(arguments: list[str]) -> None:
    if not any(each in COMMANDS for each in arguments):  # help, the version, or a mistake
        make_app(arguments)()
    elif HELP in arguments:
        make_app(arguments)(_asked_help(arguments))
    else:
        _answered(make_app(arguments))


def _asked_help(arguments: list[str]) -> list[str]:
    """The command, or the command of a group, and ``--help``: what else was given does not matter to a help page."""
    words = [each for each in arguments if not each.startswith("-")]
    of_group = words[0] in COMMANDS and COMMANDS[words[0]].group
    return [*words[: 2 if of_group else 1], HELP]


def _answered(app: Callable[[], None]) -> None:
    """Runs a command together with the processes that torchrun started, of which the first one speaks."""
    from sanp.core import distributed  # loads torch

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
        _say(f"{error.filename or 'the output'}: {error.strerror or error}")
        sys.exit(2)


def _say(error: object) -> None:
    """Prints an error as one line."""
    text = plain(" ".join(str(error).split()))
    short = text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]} ..."
    line = Text.assemble(("error:", "red"), " ", short)
    make_console(stderr=True).print(line, soft_wrap=True)
