"""Dense: prunes nothing. The other methods are compared with this network, and start from it."""

from dataclasses import dataclass

from torch import nn

from sanp.training.stage import Stages
from sanp.training.task import Task


@dataclass(frozen=True, kw_only=True)
class Dense:
    """The method that leaves the network as it is."""

    name: str = "dense"
    layer_adaptive: bool = False
    sample_adaptive: bool = False
    simplified: str = ""

    def check(self, net: nn.Module, task: Task) -> None:
        """Accepts every budget, since it is not used."""

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Yields no stage and returns ``net`` itself."""
        yield from ()
        return net
