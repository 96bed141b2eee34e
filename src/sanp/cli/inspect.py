"""`sanp inspect`: what gating a network of one's own would do, as a table."""

from collections.abc import Sequence
from typing import Annotated

import typer

from sanp.cli.console import make_console, plain_lines
from sanp.cli.factory import build_network, read_input
from sanp.gating.describe import table
from sanp.gating.flops import human
from sanp.gating.gating import gate


def inspect(
    target: Annotated[str, typer.Argument(help="module:factory, where the factory builds the network.")],
    input: Annotated[
        str, typer.Option(help="Shape of the input, as 1,3,224,224; of several, with semicolons.")
    ] = "1,3,224,224",
    skip: Annotated[list[str] | None, typer.Option(help="Modules to leave dense: names or patterns.")] = None,
    shortcuts: Annotated[bool, typer.Option(help="Gate 1x1 shortcut convolutions too.")] = True,
) -> None:
    """Show every convolution of a network, its gate and what feeds it."""
    console = make_console()
    text = inspect_network(target, input, skip=skip or (), shortcuts=shortcuts, width=console.width)
    console.print(plain_lines(text), soft_wrap=True)


def inspect_network(
    target: str, shape: str, *, skip: Sequence[str] = (), shortcuts: bool = True, width: int = 120
) -> str:
    """Gates the network that ``module:factory`` builds and gives its table.

    ``shape`` is the input's, sizes with commas; several inputs are separated by semicolons. ``skip`` and ``shortcuts``
    are those of :func:`sanp.gate`, ``width`` that of the table.
    """
    net = build_network(target)
    example = tuple(read_input(part) for part in shape.split(";"))
    gated = gate(net, example, skip=skip, shortcuts=shortcuts)
    return f"{table(gated, width)}\nthe SPMs add {human(gated.overhead_flops)} FLOPs"
