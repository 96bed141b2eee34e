"""Dense: nothing is pruned. The row that the others are compared with, and the network that they start from."""

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

    def check(self, net: nn.Module, task: Task) -> None:
        """Every budget will do."""

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """No stage at all, whatever the budget."""
        yield from ()
        return net
