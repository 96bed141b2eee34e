"""Options that several commands share. Nothing in this file loads torch: a help page needs only what stands here."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

NETWORK_NAMES = "module:factory, timm:NAME, torchvision:NAME or transformers:NAME"

RunArgument = Annotated[Path, typer.Argument(help="Folder of a finished run, or the name of a pretrained network.")]
NetworkOption = Annotated[
    str | None,
    typer.Option("--network", help=f"The network of a run that was trained with --network: {NETWORK_NAMES}."),
]
WeightsOption = Annotated[
    Path | None, typer.Option("--weights", help="Weights of a network of your own: a .safetensors file.")
]
InputOption = Annotated[
    str, typer.Option("--input", help="Shape of an input of a network that is no run, as 1,3,224,224.")
]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="Set the network to this budget first, as 35%, 60M or 1.2ms.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where it runs: auto, cpu, cuda or mps.")]
EngineDevice = Annotated[
    str, typer.Option("--device", help="auto or cpu: in the engine; cuda or mps: in torch on that device.")
]
PrecisionOption = Annotated[str, typer.Option("--precision", help="What the engine computes in: fp32 or int8.")]


def with_network(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the option --network: inside the command, that name may be imported."""
    option = inspect.Parameter("network", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=NetworkOption)

    def filled(*, network: str | None, **given: Any) -> None:
        from sanp.experiments.own_network import given_network

        with given_network(network):
            command(**given)

    own = inspect.signature(command, eval_str=True).parameters.values()
    own_by_name = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    filled.__signature__ = inspect.Signature([*own_by_name, option])  # type: ignore[attr-defined]
    filled.__doc__, filled.__name__ = command.__doc__, command.__name__
    return filled
