"""`sanp inspect`: what gating a network of one's own would do, as a table."""

from typing import Annotated

import typer
from rich.console import Console

from sanp.cli.factory import inspect_network


def inspect(
    target: Annotated[str, typer.Argument(help="module:factory, where the factory builds the network.")],
    input: Annotated[str, typer.Option(help="Shape of an input, as 1,3,224,224.")] = "1,3,224,224",
    skip: Annotated[list[str] | None, typer.Option(help="Modules to leave dense: names or patterns.")] = None,
    shortcuts: Annotated[bool, typer.Option(help="Gate 1x1 shortcut convolutions too.")] = True,
) -> None:
    """Show every convolution of a network, its gate and what feeds it."""
    Console().print(inspect_network(target, input, skip=skip or (), shortcuts=shortcuts), markup=False, highlight=False)
