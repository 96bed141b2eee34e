"""What the methods that cut have in common: follow the channels, train towards removal, cut, fine-tune."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sanp.core.bisection import find_level
from sanp.methods.cutting.cut import CutNetwork, cut
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.groups import ChannelGroups, check_removable
from sanp.methods.cutting.ranking import with_survivors
from sanp.methods.parts.retrain import check_reach, kept_of, plain_stage
from sanp.training.finish import finish_norms
from sanp.training.stage import Stages
from sanp.training.task import Task, with_teacher


class Cutting:
    """A copy of a dense network on its way to being cut: its channels, its budget and its data."""

    def __init__(self, net: nn.Module, task: Task, method: str) -> None:
        self.task = with_teacher(task, net)
        self.method = method
        self.net = copy.deepcopy(net)
        self.example: Tensor = task.example()
        self.channel_groups: ChannelGroups = find_groups(self.net, self.example)
        check_removable(self.channel_groups, net)
        self.dense_flops = self.channel_groups.flops(set())
        self.kept = kept_of(task, self.dense_flops)

    def kept_without(self, removed: set[int]) -> float:
        """The share of the dense FLOPs that is left without these channels."""
        return self.channel_groups.flops(removed) / self.dense_flops

    def check_reach(self, most: set[int]) -> None:
        """An error for a budget that is missed even without all of these channels."""
        check_reach(self.kept_without(most), self.kept, self.method)

    def check_emptying(self, layers: Mapping[str, Tensor]) -> None:
        """An error for a budget that is missed even with one channel left in each of these layers."""
        every = {int(group): 0.0 for groups in layers.values() for group in groups}
        self.check_reach(with_survivors(self.channel_groups, set(every), every))

    def level(self, removed_at: Callable[[float], set[int]], low: float, high: float) -> float:
        """The level at which the channels that go leave the budget; they grow in number from ``low`` to ``high``."""
        self.check_reach(removed_at(high))
        return find_level(lambda level: self.kept_without(removed_at(level)), self.kept, low, high)

    def without(self, removed: set[int]) -> CutNetwork:
        """The network cut."""
        return cut(self.net, self.channel_groups, removed, self.example, method=self.method)

    def fine_tune(self, smaller: CutNetwork, epochs: int) -> Stages:
        """Trains what is left, with batch norm statistics estimated anew at the end."""
        if epochs:
            yield plain_stage("fine-tune", smaller, self.task, epochs)
        finish_norms(smaller, self.task)
        return smaller

    def module(self, path: str) -> Any:
        """A layer of the network, by path."""
        return self.net.get_submodule(path)
