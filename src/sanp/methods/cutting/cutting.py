"""The steps that all methods that cut channels have in common: find channel groups, meet the budget, cut, fine-tune."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sanp.core.bisection import find_level
from sanp.methods.cutting.cut import CutNetwork, cut
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.groups import ChannelGroups, check_removable
from sanp.methods.cutting.ranking import Scores, below, least_of_each_layer, removable_groups, with_survivors
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
        self.example: Tensor = task.example(net)
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

    def level(self, removed_at: Callable[[float], set[int]], low: float, high: float) -> float:
        """The level, such as a threshold or a rate, at which the FLOPs that are left are nearest to the budget.

        ``removed_at`` gives the channel groups that are removed at a level; more are removed at ``high`` than at
        ``low``. An error if the budget is not even met at ``high``.
        """
        self.check_reach(removed_at(high))
        return find_level(lambda level: self.kept_without(removed_at(level)), self.kept, low, high)

    def least_of_each_layer(self, layers: Mapping[str, Tensor], scores: Scores) -> set[int]:
        """The channel groups of least score, the same share of each layer, whose removal meets the budget.

        ``layers`` holds the removable groups of each layer, by path.
        """

        def removed_at(rate: float) -> set[int]:
            return least_of_each_layer(self.channel_groups, layers, scores, rate)

        return removed_at(self.level(removed_at, 0.0, 1.0))

    def least_of_all(self, scores: Scores) -> set[int]:
        """The channel groups below the one threshold for the whole network that meets the budget.

        ``scores`` must not be negative, and no two the same: see :func:`ranked`.
        """

        def removed_at(threshold: float) -> set[int]:
            return below(self.channel_groups, scores, threshold)

        return removed_at(self.level(removed_at, -1.0, max(scores.values())))

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


def check_emptying(net: nn.Module, task: Task, method: str, *, added: bool = True) -> None:
    """Raises an error if ``net`` exceeds the budget of ``task`` even with one channel left in each layer.

    ``method`` is the name of the pruning method; ``added=False`` if it leaves channels alone that an addition joins.
    """
    cutting = Cutting(net, task, method)
    layers = removable_groups(cutting.channel_groups, added=added)
    every = {int(group): 0.0 for groups in layers.values() for group in groups}
    cutting.check_reach(with_survivors(cutting.channel_groups, set(every), every))
