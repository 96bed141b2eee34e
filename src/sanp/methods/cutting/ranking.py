"""Which channels static pruning takes out: by one threshold over the whole network, or the least of every layer."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sanp.methods.cutting.groups import FIXED, ChannelGroups

Scores = Mapping[int, float]
"""channel (group channel) to how much it matters"""


def removable_groups(channel_groups: ChannelGroups, *, added: bool = True) -> dict[str, Tensor]:
    """The channels that may go, by the first convolution that makes them: path to group ids.

    ``added=False`` leaves out those that an addition has tied to another layer's.
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
    """All channels of a score up to the threshold, but never a whole layer: its best channel stays."""
    removed = {group for group, score in scores.items() if score <= threshold}
    return with_survivors(channel_groups, removed, scores)


def ranked(layers: Mapping[str, Tensor], scores: Scores) -> dict[int, float]:
    """The scores as ranks, which a threshold tells apart even among equals: of those, every layer gives its share."""
    place = {int(group): number / len(groups) for groups in layers.values() for number, group in enumerate(groups)}
    order = sorted(scores, key=lambda group: (scores[group], place[group]))
    return {group: float(rank) for rank, group in enumerate(order)}


def least_of_each_layer(
    channel_groups: ChannelGroups, layers: Mapping[str, Tensor], scores: Scores, rate: float
) -> set[int]:
    """The ``floor(rate C)`` channels of least score of every layer, the first of equals first."""
    removed: set[int] = set()
    for path, groups in layers.items():
        count = int(rate * len(channel_groups.members[path].outputs) + 1e-9)
        order = sorted(groups.tolist(), key=lambda group: scores[group])
        removed.update(order[:count])
    return with_survivors(channel_groups, removed, scores)


def with_survivors(channel_groups: ChannelGroups, removed: set[int], scores: Scores) -> set[int]:
    """Gives every convolution that would lose all its outputs its best one back."""
    removed = set(removed)
    for member in channel_groups.convs.values():
        groups = channel_groups.groups_of(member.outputs).tolist()
        if all(group in removed for group in groups):
            removed.discard(max(dict.fromkeys(groups), key=lambda group: scores[group]))
    return removed


def channel_sums(channel_groups: ChannelGroups, path: str, values: Tensor) -> dict[int, float]:
    """Values of a layer's outputs (C_out,) added up by channel."""
    groups = channel_groups.groups_of(channel_groups.members[path].outputs)
    sums = torch.zeros(int(groups.max()) + 1, dtype=torch.float64)
    sums.index_add_(0, groups, values.detach().double().cpu())
    return {group: float(sums[group]) for group in dict.fromkeys(groups.tolist())}
