"""The steps that all methods that cut channels have in common: find channel groups, meet the budget, cut, fine-tune."""

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
    """A copy of a dense network that is to be cut, with its channel groups, budget and task.

    ``method`` is the name of the pruning method.
    """

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
        """The share of the dense FLOPs that is left without these channel groups."""
        return self.channel_groups.flops(removed) / self.dense_flops

    def check_reach(self, most: set[int]) -> None:
        """Raises an error if the network exceeds the budget even without the channel groups ``most``."""
        check_reach(self.kept_without(most), self.kept, self.method)

    def check_emptying(self, layers: Mapping[str, Tensor]) -> None:
        """Raises an error if the network exceeds the budget even with one channel left in each of these layers.

        ``layers`` holds the removable channel groups of each layer, by path.
        """
        every = {int(group): 0.0 for groups in layers.values() for group in groups}
        self.check_reach(with_survivors(self.channel_groups, set(every), every))

    def level(self, removed_at: Callable[[float], set[int]], low: float, high: float) -> float:
        """The level, such as a threshold or a rate, at which the FLOPs that are left are nearest to the budget.

        ``removed_at`` gives the channel groups that are removed at a level; more are removed at ``high`` than at
        ``low``. An error if the budget is not even met at ``high``.
        """
        self.check_reach(removed_at(high))
        return find_level(lambda level: self.kept_without(removed_at(level)), self.kept, low, high)

    def without(self, removed: set[int]) -> CutNetwork:
        """The network without these channel groups."""
        return cut(self.net, self.channel_groups, removed, self.example, method=self.method)

    def fine_tune(self, smaller: CutNetwork, epochs: int) -> Stages:
        """Trains the cut network, then estimates its batch norm statistics."""
        if epochs:
            yield plain_stage("fine-tune", smaller, self.task, epochs)
        finish_norms(smaller, self.task)
        return smaller

    def module(self, path: str) -> Any:
        """The module of the network at ``path``."""
        return self.net.get_submodule(path)
