"""FCP / OFCP, filter clustering, as far as its abstract tells: a cluster loss, then one filter of each cluster is kept.

The clusters of every layer are defined first. The loss is cross entropy + (λ/2) Σ |w_i - mean of its cluster|² with a
growing λ; w_i includes batch norm scale and shift. Then the filter nearest to its cluster's mean is kept, the others
are removed, and the network is fine-tuned. Layers that are joined by an addition share their clusters.

How a layer comes to its rate is not in the abstract. Here one distance holds for all layers, in units of the root mean
square length of the layer's filters: a layer has as many clusters as are needed for no filter to be farther than that
from the first filter of its cluster, and at least the share ``least``. The distance is set so that the FLOPs meet the
budget. With ``rates = "same"`` every layer has ceil(C (1 - rate)) clusters. With ``merge = "mean"`` a cluster becomes
its mean filter and the next layers' kernels over its channels are summed, as in C-SGD (Ding et al., 2019).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.devices import in_double
from sanp.core.errors import SanpError
from sanp.methods.cutting.clusters import (
    Part,
    cluster_spread,
    farthest_first,
    filters,
    k_means,
    merge_clusters,
    nearest_to_mean,
    parts_of,
    rows_of,
)
from sanp.methods.cutting.cutting import Cutting
from sanp.methods.cutting.ranking import removable_groups
from sanp.methods.parts.retrain import epochs_in_parts, plain_stage, total_lr
from sanp.training.stage import Stages, steps_in
from sanp.training.task import Task
from sanp.training.term import Forward, Penalty


@dataclass(frozen=True, kw_only=True)
class FCPConfig:
    """Settings of filter clustering."""

    pull: float = 6.0
    """how strongly λ grows: the penalty alone would shrink distances within a cluster by the factor exp(-pull)"""
    cluster_share: float = 0.5
    """share of the epochs that train with the penalty; the others fine-tune"""
    merge: Literal["one", "mean"] = "one"
    """what a cluster becomes; one: its filter nearest to the mean; mean: the mean, with the next kernels summed"""
    rates: Literal["layer", "same"] = "layer"
    """layer: one distance for all layers, from which the number of clusters of each follows; same: one rate for all"""
    least: float = 0.1
    """with rates layer: share of its filters that every layer has as clusters at least"""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.pull > 0:
            raise SanpError(f"pull {self.pull} must be above 0: it is how far clusters are drawn together")
        if not 0 < self.cluster_share < 1:
            raise SanpError(f"cluster_share {self.cluster_share} must be between 0 and 1: it is a share of the epochs")
        if not 0 <= self.least < 1:
            raise SanpError(f"least {self.least} must be at least 0 and below 1: it is a share of a layer's filters")


@dataclass(frozen=True)
class Clustered:
    """The channels of one layer in clusters."""

    groups: Tensor
    """(C,): the channel groups of the layer"""
    assigned: Tensor
    """(C,): the cluster of each"""
    parts: list[Part]
    """the tensors that hold their filters"""

    @property
    def count(self) -> int:
        """The number of clusters."""
        return int(self.assigned.max()) + 1


@dataclass(frozen=True, kw_only=True)
class FCP:
    """Filter clustering as a pruning method."""

    name: str = "fcp"
    layer_adaptive: bool = True
    sample_adaptive: bool = False
    simplified: str = ""
    config: FCPConfig = field(default_factory=FCPConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if the fewest clusters that every layer can have already exceed the budget."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups)
        cutting.check_reach(removed_with(layers, self._counts(cutting, layers)[0](math.inf)))

    def _counts(
        self, cutting: Cutting, layers: Mapping[str, Tensor]
    ) -> tuple[Callable[[float], dict[str, int]], float, float]:
        """The number of clusters of each layer, by path, as a function of the rate or distance, and the ends of that.

        At the first end every filter is a cluster of its own, at the second there are fewest.
        """
        if self.config.rates == "same":
            return lambda rate: {path: num_clusters(len(groups), rate) for path, groups in layers.items()}, 0.0, 1.0
        radii = {path: relative_radii(_filters(cutting, groups)) for path, groups in layers.items()}

        def counts(distance: float) -> dict[str, int]:
            return {path: clusters_within(each, distance, self.config.least) for path, each in radii.items()}

        return counts, -1.0, max(each[0] for each in radii.values())

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Finds the clusters, trains with the penalty, keeps one filter of each cluster, fine-tunes."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups)
        counts, low, high = self._counts(cutting, layers)
        found = counts(cutting.level(lambda level: removed_with(layers, counts(level)), low, high))
        clustered = [_cluster(cutting, groups, found[path]) for path, groups in layers.items()]
        pulled, fine = epochs_in_parts(task, self.config.cluster_share, 1 - self.config.cluster_share)
        if pulled:
            distance = total_lr(task.config, pulled, steps_in(task.loader), weight=lambda progress: progress)
            strength = self.config.pull / distance if distance else 0.0  # in a single step λ stays 0
            yield plain_stage(
                "cluster", cutting.net, cutting.task, pulled, penalty=_cluster_pull(cutting.net, clustered, strength)
            )
        removed: set[int] = set()
        for layer in clustered:
            removed |= self._reduce(cutting, layer)
        finished = yield from cutting.fine_tune(cutting.without(removed), fine)
        return finished

    def _reduce(self, cutting: Cutting, layer: Clustered) -> set[int]:
        """Leaves one channel of each cluster; returns the groups of the others, which are to be cut."""
        if self.config.merge == "mean":
            return merge_clusters(cutting.net, cutting.channel_groups, layer.groups, layer.assigned)
        left = nearest_to_mean(filters(cutting.net, layer.parts), layer.assigned)
        return set(layer.groups.tolist()) - set(layer.groups[left].tolist())


def num_clusters(channels: int, rate: float) -> int:
    """The number of clusters of a layer with C channels: ceil(C (1 - rate)), at least one."""
    return max(1, channels - int(min(rate, 1.0) * channels + 1e-9))


def relative_radii(points: Tensor) -> list[float]:
    """How far filters (C, size) are from the nearest of the first 1, 2, ... C of them, farthest first.

    In units of the root mean square length of the filters.
    """
    length = float(in_double(points.detach()).square().sum(1).mean().sqrt())
    radii = farthest_first(points, len(points))[1]
    return [radius / length if length else 0.0 for radius in radii]


def clusters_within(radii: list[float], distance: float, least: float) -> int:
    """The smallest number of clusters with no filter farther than ``distance`` from its first one.

    ``radii`` are those of :func:`relative_radii`. At least the share ``least`` of the filters, and one.
    """
    enough = next((count for count, radius in enumerate(radii, 1) if radius <= distance), len(radii))
    return max(1, math.ceil(least * len(radii) - 1e-9), enough)


def removed_with(layers: Mapping[str, Tensor], counts: Mapping[str, int]) -> set[int]:
    """Channel groups whose removal leaves ``counts`` channels, by path; which ones does not matter for the FLOPs."""
    return {int(group) for path, groups in layers.items() for group in groups[counts[path] :]}


def _filters(cutting: Cutting, groups: Tensor) -> Tensor:
    return filters(cutting.net, parts_of(cutting.net, cutting.channel_groups, groups))


def _cluster(cutting: Cutting, groups: Tensor, count: int) -> Clustered:
    parts = parts_of(cutting.net, cutting.channel_groups, groups)
    return Clustered(groups, k_means(filters(cutting.net, parts), count), parts)


def _cluster_pull(net: nn.Module, clustered: list[Clustered], strength: float) -> Penalty:
    """The penalty (λ/2) Σ |w_i - mean|², with λ = strength · progress."""

    def penalty(forward: Forward) -> Tensor:
        spreads = [
            cluster_spread(rows_of(net, part), layer.assigned, layer.count)
            for layer in clustered
            if layer.count < len(layer.groups)
            for part in layer.parts
        ]
        return strength * forward.progress / 2 * torch.stack(spreads).sum() if spreads else torch.zeros(())

    return penalty
