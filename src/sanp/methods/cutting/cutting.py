"""What the methods that cut have in common: follow the channels, train towards removal, cut, fine-tune."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from sanp.methods.cutting.cut import CutNetwork, cut
from sanp.methods.cutting.find_groups import find_coupling
from sanp.methods.cutting.groups import Coupling, check_removable
from sanp.methods.parts.bisection import check_reach, find_level
from sanp.methods.parts.retrain import finish_norms, plain_stage, share_of
from sanp.training.fitting import Stages
from sanp.training.task import Task, with_teacher


class Cutting:
    """A copy of a dense network on its way to being cut: its channels, its budget and its data."""

    def __init__(self, net: nn.Module, task: Task, method: str) -> None:
        self.task = with_teacher(task, net)
        self.method = method
        self.net = copy.deepcopy(net)
        self.example: Tensor = task.example()
        self.coupling: Coupling = find_coupling(self.net, self.example)
        check_removable(self.coupling, net)
        self.dense_flops = self.coupling.flops(set())
        self.share = share_of(task, self.dense_flops)

    def cost(self, gone: set[int]) -> float:
        """What is left without these channels, as a share of the dense FLOPs."""
        return self.coupling.flops(gone) / self.dense_flops

    def check_reach(self, most: set[int]) -> None:
        """An error for a budget that is missed even without all of these channels."""
        check_reach(self.cost(most), self.share, self.method)

    def level(self, gone_at: Callable[[float], set[int]], low: float, high: float) -> float:
        """The level at which the channels that go leave the budget; they grow in number from ``low`` to ``high``."""
        self.check_reach(gone_at(high))
        return find_level(lambda level: self.cost(gone_at(level)), self.share, low, high)

    def without(self, gone: set[int]) -> CutNetwork:
        """The network cut."""
        return cut(self.net, self.coupling, gone, self.example, method=self.method)

    def fine_tune(self, smaller: CutNetwork, epochs: int) -> Stages:
        """Trains what is left, with batch norm statistics estimated anew at the end."""
        if epochs:
            yield plain_stage("fine-tune", smaller, self.task, epochs)
        finish_norms(smaller, self.task)
        return smaller

    def module(self, path: str) -> Any:
        """A layer of the network, by path."""
        return self.net.get_submodule(path)
