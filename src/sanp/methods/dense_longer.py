"""Dense, trained longer: a control that prunes nothing, but trains as long and from the same teacher as all others.

The pruned networks learn from the dense one for some epochs more than it had. What this network gains in them is not
the merit of a pruning method.
"""

import copy
from dataclasses import dataclass

from torch import nn

from sanp.methods.parts.retrain import epochs_in_parts, plain_stage
from sanp.training.finish import finish_norms
from sanp.training.stage import Stages
from sanp.training.task import Task, with_teacher


@dataclass(frozen=True, kw_only=True)
class DenseLonger:
    """Further training of the dense network; it has no settings of its own."""

    name: str = "dense_longer"
    layer_adaptive: bool = False
    sample_adaptive: bool = False
    simplified: str = ""

    def check(self, net: nn.Module, task: Task) -> None:
        """Accepts every budget, since it is not used."""

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Trains a copy of the network for the epochs that others prune in."""
        longer, task = copy.deepcopy(net), with_teacher(task, net)
        epochs = epochs_in_parts(task, 1)[0]
        if epochs:
            yield plain_stage("train longer", longer, task, epochs)
        finish_norms(longer, task)
        return longer
