"""Uniform, a control: the same network, thinner by one factor in every layer, trained from scratch.

It is trained for as many epochs as the dense network and the pruning of it have together (Liu et al., 2019: a pruning
method must be better than this). The factor is set so that the FLOPs meet the budget.
"""

from dataclasses import dataclass, field

from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.methods.cutting.cutting import Cutting, check_emptying
from sanp.methods.cutting.ranking import removable_groups
from sanp.methods.parts.scratch import scratch_stage, untrained
from sanp.training.finish import finish_norms
from sanp.training.stage import Stages
from sanp.training.task import Task


@dataclass(frozen=True, kw_only=True)
class UniformConfig:
    """Settings of the thinner network."""

    distill: bool = True
    """learn from the dense network too, as the pruned networks do; if not, from the task's loss alone"""
    seed: int = 0
    """of the new weights"""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """The thinner network from scratch, as a pruning method."""

    name: str = "uniform"
    layer_adaptive: bool = False
    sample_adaptive: bool = False
    simplified: str = ""
    config: UniformConfig = field(default_factory=UniformConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one channel in each layer already exceeds the budget."""
        check_emptying(net, task, self.name)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Makes the thinner network and trains it."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups)
        thinner = untrained(cutting.without(thinned(cutting, layers)), self.config.seed)
        config = task.config
        epochs = config.pretrain_epochs + config.warmup_epochs + config.joint_epochs
        if epochs:
            yield scratch_stage("from scratch", thinner, cutting.task, epochs, distill=self.config.distill)
        finish_norms(thinner, cutting.task)
        return thinner


def thinned(cutting: Cutting, layers: dict[str, Tensor]) -> set[int]:
    """The channel groups that are removed: the last ones of each layer, the same share of all, to meet the budget.

    ``layers`` holds the removable groups of each layer, by path.
    """
    last_first = {int(group): -float(group) for groups in layers.values() for group in groups}
    return cutting.least_of_each_layer(layers, last_first)
