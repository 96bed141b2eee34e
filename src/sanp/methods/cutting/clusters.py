"""Clusters of channels (FCP; Ding et al., 2019): k-means over their filters, the distances to the means, what is kept.

The filter of a channel is everything that it is computed with: the kernels of all convolutions that it is an output of,
and its scale and shift in their batch norms. Channels with equal filters have equal maps. So one of them can be kept
and the others removed; the output is the same if the kernels of the layers that read them are summed (see
:func:`merge_clusters`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sanp.core.devices import in_double
from sanp.methods.cutting.groups import ChannelGroups


@dataclass(frozen=True)
class Part:
    """The entries of one parameter that belong to some channels."""

    path: str
    """of the module"""
    name: str
    """of its parameter"""
    rows: Tensor
    """(C,): indices into the first dimension of the parameter, one for each channel"""


def parts_of(net: nn.Module, channel_groups: ChannelGroups, groups: Tensor) -> list[Part]:
    """The parameters that these channels are computed with.

    ``groups`` (C,) holds the group of each channel; the rows of each part are in the same order.
    """
    parts = []
    for path, member in channel_groups.members.items():
        place = {group: row for row, group in enumerate(channel_groups.groups_of(member.outputs).tolist())}
        if int(groups[0]) not in place:
            continue
        rows = torch.tensor([place[group] for group in groups.tolist()])
        module = net.get_submodule(path)
        parts += [
            Part(path, name, rows) for name in ("weight", "bias") if isinstance(getattr(module, name, None), Tensor)
        ]
    return parts


def rows_of(net: nn.Module, part: Part) -> Tensor:
    """The entries of a parameter that belong to the channels, flattened to (C, size)."""
    tensor: Tensor = getattr(net.get_submodule(part.path), part.name)
    return tensor[part.rows].reshape(len(part.rows), -1)


def filters(net: nn.Module, parts: list[Part]) -> Tensor:
    """The filter of each channel as one vector: (C, total size)."""
    return torch.cat([rows_of(net, part) for part in parts], 1)


def farthest_first(points: Tensor, count: int) -> tuple[list[int], list[float]]:
    """The first ``count`` points in the order of Gonzalez (1985), and how far the others are from those so far.

    ``points`` is (C, size). The first is the longest point, each further one the point farthest from those before it.
    The second list holds the largest distance of any point from its nearest one among the first 1, 2, ... ``count``.
    """
    points = in_double(points.detach())
    seeds = [int(points.norm(dim=1).argmax())]
    distance = (points - points[seeds[0]]).norm(dim=1)
    radii = [float(distance.max())]
    while len(seeds) < count:
        distance[seeds] = -1  # a point must not become a seed twice, even if others equal it
        seeds.append(int(distance.argmax()))
        distance = torch.minimum(distance, (points - points[seeds[-1]]).norm(dim=1))
        radii.append(max(0.0, float(distance.max())))
    return seeds, radii


def k_means(points: Tensor, count: int, rounds: int = 20) -> Tensor:
    """The cluster of each point (C,), from 0 to ``count`` - 1; no cluster is empty.

    ``points`` is (C, size). The seeds are those of :func:`farthest_first`, so the result does not depend on random
    numbers. There are at most ``rounds`` iterations.
    """
    points = in_double(points.detach())
    seeds = farthest_first(points, count)[0]
    centres = points[seeds]
    assigned = torch.zeros(len(points), dtype=torch.long)
    for _ in range(rounds):
        nearest = torch.cdist(points, centres).argmin(1)
        nearest[seeds] = torch.arange(count)  # so that no cluster becomes empty
        if torch.equal(nearest, assigned):
            break
        assigned = nearest
        centres = cluster_means(points, assigned, count)
    return assigned


def cluster_means(rows: Tensor, assigned: Tensor, count: int) -> Tensor:
    """The mean of the rows of each cluster: (C, ...) to (count, ...); ``assigned`` is the cluster of each row (C,)."""
    assigned = assigned.to(rows.device)
    sizes = torch.bincount(assigned, minlength=count).to(rows.dtype)
    sums = rows.new_zeros(count, *rows.shape[1:]).index_add(0, assigned, rows)
    return sums / sizes.reshape(-1, *(1,) * (rows.dim() - 1))


def cluster_spread(rows: Tensor, assigned: Tensor, count: int) -> Tensor:
    """Σ |w_i - mean of its cluster|² over the rows w_i; the arguments are those of :func:`cluster_means`."""
    return (rows - cluster_means(rows, assigned, count)[assigned.to(rows.device)]).square().sum()


def nearest_to_mean(points: Tensor, assigned: Tensor) -> Tensor:
    """The index of the point of each cluster that is nearest to the cluster's mean: (count,).

    ``points`` is (C, size), ``assigned`` (C,) the cluster of each.
    """
    points = in_double(points.detach())
    count = int(assigned.max()) + 1
    distance = (points - cluster_means(points, assigned, count)[assigned.to(points.device)]).norm(dim=1).cpu()
    members = [(assigned == cluster).nonzero()[:, 0] for cluster in range(count)]
    return torch.stack([member[distance[member].argmin()] for member in members])


@torch.no_grad()
def merge_clusters(net: nn.Module, channel_groups: ChannelGroups, groups: Tensor, assigned: Tensor) -> set[int]:
    """Merges each cluster into its first channel, in place, and returns the groups of all other channels, to be cut.

    ``groups`` (C,) holds the group of each channel, ``assigned`` (C,) its cluster. The first channel of a cluster gets
    the mean filter, and in the layers that read it the sum of the cluster's kernels.
    """
    count = int(assigned.max()) + 1
    first = torch.tensor([int((assigned == cluster).nonzero()[0]) for cluster in range(count)])
    lead_of = {
        int(group): int(groups[first[cluster]]) for group, cluster in zip(groups, assigned.tolist(), strict=True)
    }
    for path, member in channel_groups.members.items():
        module = net.get_submodule(path)
        if member.inputs is not None and getattr(module, "groups", 1) == 1:
            _sum_inputs(module.weight, channel_groups.groups_of(member.inputs).tolist(), lead_of)  # type: ignore[arg-type]
        place = {group: row for row, group in enumerate(channel_groups.groups_of(member.outputs).tolist())}
        if int(groups[0]) not in place:
            continue
        rows = torch.tensor([place[group] for group in groups.tolist()])
        for name in ("weight", "bias", "running_mean", "running_var"):
            tensor = getattr(module, name, None)
            if isinstance(tensor, Tensor):
                tensor[rows[first]] = cluster_means(tensor[rows], assigned, count)
    return {group for group, lead in lead_of.items() if group != lead}


def _sum_inputs(weight: Tensor, inputs: list[int], lead_of: dict[int, int]) -> None:
    """Adds the kernels of merged channels to those of the first channel of their cluster.

    ``inputs`` holds the group of each input channel of the layer, ``lead_of`` maps each group to the first one of its
    cluster. A group may have several input channels; they are added in order.
    """
    places: dict[int, list[int]] = {}
    for place, group in enumerate(inputs):
        places.setdefault(group, []).append(place)
    for group, lead in lead_of.items():
        if group != lead and group in places:
            weight[:, places[lead]] += weight[:, places[group]]
