"""What the commands print with: consoles that take text as text, and functions that make any text safe to print.

Names come from outside: of classes, layers, files, data sets. They may hold rich's markup or codes for the terminal.
"""

import textwrap

from rich.console import Console

from sanp.core.plain_text import plain, plain_lines

__all__ = ["console", "hanging", "make_console", "plain", "plain_lines"]


def make_console(*, stderr: bool = False) -> Console:
    """A console for which ``[red]`` and ``:smile:`` are text like any other."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


console = make_console()
"""of the commands that several processes may run together: only the first process prints"""


def hanging(term: str, text: str, *, indent: int, width: int) -> str:
    """A term and its explanation beside it, in lines of at most ``width``; a long term has a line of its own."""
    lines = textwrap.wrap(text, max(20, min(width, 100) - indent)) or [""]
    first = f"{term:<{indent}}{lines[0]}" if len(term) < indent else f"{term}\n{' ' * indent}{lines[0]}"
    return "\n".join([first, *(" " * indent + line for line in lines[1:])])
