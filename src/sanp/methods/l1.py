"""L1-norm filter pruning (Li et al., 2017): removes the filters of least Σ|w|, the same share of each layer.

The rest is fine-tuned. The share is set so that the FLOPs meet the budget. Layers whose channels an addition joins with
those of another layer are not pruned, as in that paper (only the first convolution of a block).
"""

from dataclasses import dataclass

from torch import nn

from sanp.methods.cutting.cutting import Cutting, check_emptying
from sanp.methods.cutting.ranking import channel_sums, removable_groups
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.training.stage import Stages
from sanp.training.task import Task


@dataclass(frozen=True, kw_only=True)
class L1:
    """L1-norm filter pruning as a pruning method; it has no settings of its own."""

    name: str = "l1"
    layer_adaptive: bool = False
    sample_adaptive: bool = False
    simplified: str = ""

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one channel in each layer already exceeds the budget."""
        check_emptying(net, task, self.name, added=False)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Cuts the network, then fine-tunes it for all epochs."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups, added=False)
        scores: dict[int, float] = {}
        for path in layers:
            norms = cutting.module(path).weight.flatten(1).abs().sum(1)  # (C_out,)
            scores.update(channel_sums(cutting.channel_groups, path, norms))
        smaller = cutting.without(cutting.least_of_each_layer(layers, scores))
        finished = yield from cutting.fine_tune(smaller, epochs_in_parts(task, 1)[0])
        return finished
