"""Channels in clusters (Ding et al., 2019; FCP): k-means over their filters, the pull to the mean, and the merge.

A channel's filter is everything that makes it: the kernels of all convolutions that it is an output of, and its scale
and shift in their batch norms. Equal filters make equal maps, so a cluster of equal channels can be one channel whose
readers add up their kernels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sanp.methods.cutting.groups import ChannelGroups


@dataclass(frozen=True)
class Part:
    """One tensor that holds a row for each channel of a layer, and which rows."""

    path: str
    name: str
    rows: Tensor


def parts_of(net: nn.Module, channel_groups: ChannelGroups, groups: Tensor) -> list[Part]:
    """The learned tensors that make these channels, each with the channels' rows in the order of ``groups``."""
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
    """A tensor's rows for the channels, as vectors: (C, ...)."""
    tensor: Tensor = getattr(net.get_submodule(part.path), part.name)
    return tensor[part.rows].reshape(len(part.rows), -1)


def filters(net: nn.Module, parts: list[Part]) -> Tensor:
    """The channels as vectors: (C, everything that makes them)."""
    return torch.cat([rows_of(net, part) for part in parts], 1)


def k_means(points: Tensor, count: int, rounds: int = 20) -> Tensor:
    """The cluster of each point (C,), each of ``count`` clusters with at least one; the same for the same points.

    Starts from the longest point and then always the one farthest from those taken (Gonzalez, 1985).
    """
    points = points.detach().double()
    seeds = [int(points.norm(dim=1).argmax())]
    distance = (points - points[seeds[0]]).norm(dim=1)
    while len(seeds) < count:
        distance[seeds] = -1  # equal points must not be taken twice
        seeds.append(int(distance.argmax()))
        distance = torch.minimum(distance, (points - points[seeds[-1]]).norm(dim=1))
    centres = points[seeds]
    assigned = torch.zeros(len(points), dtype=torch.long)
    for _ in range(rounds):
        nearest = torch.cdist(points, centres).argmin(1)
        nearest[seeds] = torch.arange(count)  # so that no cluster runs empty
        if torch.equal(nearest, assigned):
            break
        assigned = nearest
        centres = cluster_means(points, assigned, count)
    return assigned


def cluster_means(rows: Tensor, assigned: Tensor, count: int) -> Tensor:
    """The mean row of each cluster: (C, ...) to (count, ...)."""
    assigned = assigned.to(rows.device)
    sizes = torch.bincount(assigned, minlength=count).to(rows.dtype)
    sums = rows.new_zeros(count, *rows.shape[1:]).index_add(0, assigned, rows)
    return sums / sizes.reshape(-1, *(1,) * (rows.dim() - 1))


def spread(rows: Tensor, assigned: Tensor, count: int) -> Tensor:
    """Σ |w_i - mean of its cluster|²."""
    return (rows - cluster_means(rows, assigned, count)[assigned.to(rows.device)]).square().sum()


@torch.no_grad()
def merge(net: nn.Module, channel_groups: ChannelGroups, groups: Tensor, assigned: Tensor) -> set[int]:
    """Makes the first channel of each cluster its mean and its readers' kernels the cluster's sum; gives the others.

    Works in place; the channels that it gives are to be cut out.
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
    """Adds the columns of merged channels to those of their lead, place by place where a channel has several."""
    places: dict[int, list[int]] = {}
    for column, group in enumerate(inputs):
        places.setdefault(group, []).append(column)
    for group, lead in lead_of.items():
        if group != lead and group in places:
            weight[:, places[lead]] += weight[:, places[group]]
