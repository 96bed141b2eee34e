"""`sanp inspect`: what gating a network of one's own would do, as a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sanp.cli.console import make_console, plain_lines
from sanp.cli.options import NETWORK_NAMES, DeviceOption, WeightsOption, with_network

if TYPE_CHECKING:
    from torch import nn


@with_network
def inspect(
    target: Annotated[str, typer.Argument(help=f"{NETWORK_NAMES}, a backbone, or the folder of a run.")],
    input: Annotated[
        str, typer.Option(help="Shape of the input, as 1,3,224,224; of several, with semicolons.")
    ] = "1,3,224,224",
    weights: WeightsOption = None,
    skip: Annotated[list[str] | None, typer.Option(help="Modules to leave dense: names or patterns.")] = None,
    device: DeviceOption = "auto",
    shortcuts: Annotated[bool, typer.Option(help="Gate 1x1 shortcut convolutions too.")] = True,
) -> None:
    """Show every convolution of a network, its gate and what feeds it."""
    from sanp.cli.target import build_target, read_input
    from sanp.core.devices import chosen_device
    from sanp.experiments.inputs import check_fits, read_inputs
    from sanp.experiments.run_folder import load_run
    from sanp.gating.gating import gate
    from sanp.gating.network import GatedNetwork

    place, console = chosen_device(device), make_console()
    if Path(target).is_dir():
        run = Path(target)
        inputs = read_inputs(run)
        network = load_run(run, inputs)
        check_fits(network, inputs, run)
        text = gating_table(network, console.width)
    else:
        example = tuple(read_input(part) for part in input.split(";"))
        net = build_target(target, weights, example[0]).to(place)
        gated = net if isinstance(net, GatedNetwork) else gate(net, example, skip=skip or (), shortcuts=shortcuts)
        text = gating_table(gated, console.width)
    console.print(plain_lines(text), soft_wrap=True)


def gating_table(network: "nn.Module", width: int = 120) -> str:
    """The table of a gated network, at most ``width`` wide, and what its SPMs add; of any other network its repr."""
    from sanp.gating.describe import table
    from sanp.gating.flops import human
    from sanp.gating.network import GatedNetwork

    if not isinstance(network, GatedNetwork):
        return repr(network)
    return f"{table(network, width)}\nthe SPMs add {human(network.overhead_flops)} FLOPs"
