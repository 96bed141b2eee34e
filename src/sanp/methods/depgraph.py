"""DepGraph (Fang et al., 2023), its group norm: removes the channels whose parameters are small in all layers together.

The parameters of a channel are the filters and batch norm scales that it is computed with, and the kernels that read
it, in every layer that an addition or product joins. Its score is the sum of their squares, divided by the mean score
of the channels that lie beside it. Channels below one threshold for the whole network are cut out, and the rest is
fine-tuned for all epochs. The threshold is set so that the FLOPs meet the budget; every layer keeps one channel. The
sparse training that the paper can put before the cut is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sanp.methods.cutting.cutting import Cutting, check_emptying
from sanp.methods.cutting.groups import ChannelGroups
from sanp.methods.cutting.ranking import ranked, removable_groups
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.training.stage import Stages
from sanp.training.task import Task


@dataclass(frozen=True, kw_only=True)
class DepGraph:
    """Pruning by group norm as a method; it has no settings of its own."""

    name: str = "depgraph"
    layer_adaptive: bool = True
    sample_adaptive: bool = False
    simplified: str = ""

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one channel in each layer already exceeds the budget."""
        check_emptying(net, task, self.name)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Cuts the network, then fine-tunes it for all epochs."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups)
        scores = ranked(layers, group_norms(cutting.net, cutting.channel_groups, layers))
        smaller = cutting.without(cutting.least_of_all(scores))
        finished = yield from cutting.fine_tune(smaller, epochs_in_parts(task, 1)[0])
        return finished


@torch.no_grad()
def group_norms(net: nn.Module, channel_groups: ChannelGroups, layers: Mapping[str, Tensor]) -> dict[int, float]:
    """The score of each removable channel group: its sum of squares over the mean sum of its layer.

    ``layers`` holds the removable groups of each layer, by path. Biases and shifts do not count.
    """
    total = torch.zeros(len(channel_groups.parent), dtype=torch.float64)
    for path, member in channel_groups.members.items():
        weight = getattr(net.get_submodule(path), "weight", None)
        if not isinstance(weight, Tensor):
            continue  # a batch norm without scale
        squares = weight.detach().cpu().double().square()
        of_outputs = squares.reshape(len(squares), -1).sum(1)
        total.index_add_(0, channel_groups.groups_of(member.outputs), of_outputs)
        if member.inputs is not None and squares.shape[1] == len(member.inputs):  # not depthwise or grouped
            total.index_add_(0, channel_groups.groups_of(member.inputs), squares.transpose(0, 1).flatten(1).sum(1))
    scores = {}
    for groups in layers.values():
        mean = float(total[groups].mean()) or 1.0
        scores.update({int(group): float(total[group]) / mean for group in groups})
    return scores
