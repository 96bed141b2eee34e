"""Which channels static pruning removes: those below one threshold for the whole network, or some of each layer."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sanp.methods.cutting.groups import FIXED, ChannelGroups

Scores = Mapping[int, float]
"""id of a channel group to its score, how much it matters"""


def removable_groups(channel_groups: ChannelGroups, *, added: bool = True) -> dict[str, Tensor]:
    """The removable channel groups, by the path of the first convolution that they are outputs of.

    ``added=False`` leaves out groups that an addition has joined.
    """
    taken = {channel_groups.group_of(channel) for channel in channel_groups.added} if not added else set()
    taken.add(FIXED)
    found = {}
    for path, member in channel_groups.convs.items():
        mine = [
            group for group in dict.fromkeys(channel_groups.groups_of(member.outputs).tolist()) if group not in taken
        ]
        taken.update(mine)
        if mine:
            found[path] = torch.tensor(mine)
    return found


def below(channel_groups: ChannelGroups, scores: Scores, threshold: float) -> set[int]:
    """The groups with scores up to the threshold, but never all of a layer: its best group is kept."""
    removed = {group for group, score in scores.items() if score <= threshold}
    return with_survivors(channel_groups, removed, scores)


def ranked(layers: Mapping[str, Tensor], scores: Scores) -> dict[int, float]:
    """Replaces scores by ranks, so that a threshold can separate equal scores.

    Groups with equal scores are ordered so that each layer gives its share. ``layers`` holds the groups of each layer,
    by path.
    """
    place = {int(group): number / len(groups) for groups in layers.values() for number, group in enumerate(groups)}
    order = sorted(scores, key=lambda group: (scores[group], place[group]))
    return {group: float(rank) for rank, group in enumerate(order)}


def least_of_each_layer(
    channel_groups: ChannelGroups, layers: Mapping[str, Tensor], scores: Scores, rate: float
) -> set[int]:
    """The ``floor(rate C)`` groups of least score in each layer of C channels; the best group of a layer is kept.

    ``layers`` holds the removable groups of each layer, by path. Of equal scores the first are taken.
    """
    removed: set[int] = set()
    for path, groups in layers.items():
        count = int(rate * len(channel_groups.members[path].outputs) + 1e-9)
        order = sorted(groups.tolist(), key=lambda group: scores[group])
        removed.update(order[:count])
    return with_survivors(channel_groups, removed, scores)


def with_survivors(channel_groups: ChannelGroups, removed: set[int], scores: Scores) -> set[int]:
    """The groups ``removed`` without those that are kept so that every convolution has at least one output.

    A convolution that would lose all its outputs keeps the group with the highest score.
    """
    removed = set(removed)
    for member in channel_groups.convs.values():
        groups = channel_groups.groups_of(member.outputs).tolist()
        if all(group in removed for group in groups):
            removed.discard(max(dict.fromkeys(groups), key=lambda group: scores[group]))
    return removed


def channel_sums(channel_groups: ChannelGroups, path: str, values: Tensor) -> dict[int, float]:
    """The sum of ``values`` (C_out,), one for each output of the layer at ``path``, over each channel group."""
    groups = channel_groups.groups_of(channel_groups.members[path].outputs)
    sums = torch.zeros(int(groups.max()) + 1, dtype=torch.float64)
    sums.index_add_(0, groups, values.detach().cpu().double())
    return {group: float(sums[group]) for group in dict.fromkeys(groups.tolist())}
