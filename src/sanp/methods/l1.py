"""L1-norm filter pruning (Li et al., 2017): drop the filters of least Σ|w|, the same rate in every layer, fine-tune.

Layers whose channels an addition ties to another's stay whole, as in its paper ("first convolution of a block only").
The rate is the one whose cost is the budget.
"""

from dataclasses import dataclass

from torch import nn

from sanp.methods.cutting.cutting import Cutting
from sanp.methods.cutting.ranking import channel_sums, least_of_each_layer, removable_groups
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.training.stage import Stages
from sanp.training.task import Task


@dataclass(frozen=True, kw_only=True)
class L1:
    """The method; it has no settings of its own."""

    name: str = "l1"
    layer_adaptive: bool = False
    sample_adaptive: bool = False

    def check(self, net: nn.Module, task: Task) -> None:
        """One channel in each layer must not cost more than the budget."""
        cutting = Cutting(net, task, self.name)
        cutting.check_emptying(removable_groups(cutting.channel_groups, added=False))

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Cuts, then fine-tunes for all of the epochs."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups, added=False)
        scores: dict[int, float] = {}
        for path in layers:
            norms = cutting.module(path).weight.flatten(1).abs().sum(1)  # (C_out,)
            scores.update(channel_sums(cutting.channel_groups, path, norms))

        def removed_at(rate: float) -> set[int]:
            return least_of_each_layer(cutting.channel_groups, layers, scores, rate)

        smaller = cutting.without(removed_at(cutting.level(removed_at, 0.0, 1.0)))
        finished = yield from cutting.fine_tune(smaller, epochs_in_parts(task, 1)[0])
        return finished
