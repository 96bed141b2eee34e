"""FCP / OFCP, filter clustering, as far as its abstract tells: the filters of a layer form ceil(C (1 - rate)) clusters.

The loss is cross entropy + (λ/2) Σ |w_i - mean of its cluster|² with a growing λ; w_i includes batch norm scale and
shift. Then each cluster becomes one filter, its mean, and the next layers' kernels over its channels are summed, which
is exact if the filters of a cluster are equal. At last the network is fine-tuned. The rate is set so that the FLOPs
meet the budget. Layers that are joined by an addition share their clusters.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.methods.cutting.clusters import Part, filters, k_means, merge, parts_of, rows_of, spread
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

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.pull > 0:
            raise SanpError(f"pull {self.pull} must be above 0: it is how far clusters are drawn together")
        if not 0 < self.cluster_share < 1:
            raise SanpError(f"cluster_share {self.cluster_share} must be between 0 and 1: it is a share of the epochs")


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
    config: FCPConfig = field(default_factory=FCPConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one channel in each layer already exceeds the budget."""
        cutting = Cutting(net, task, self.name)
        cutting.check_emptying(removable_groups(cutting.channel_groups))

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Finds the clusters, trains with the penalty, merges each cluster, fine-tunes."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups)

        def removed_at(rate: float) -> set[int]:
            return {int(group) for groups in layers.values() for group in groups[num_clusters(len(groups), rate) :]}

        rate = cutting.level(removed_at, 0.0, 1.0)
        clustered = [_cluster(cutting, groups, rate) for groups in layers.values()]
        pulled, fine = epochs_in_parts(task, self.config.cluster_share, 1 - self.config.cluster_share)
        if pulled:
            distance = total_lr(task.config, pulled, steps_in(task.loader), weight=lambda progress: progress)
            strength = self.config.pull / distance if distance else 0.0  # in a single step λ stays 0
            yield plain_stage(
                "cluster", cutting.net, cutting.task, pulled, penalty=_cluster_pull(cutting.net, clustered, strength)
            )
        removed: set[int] = set()
        for layer in clustered:
            removed |= merge(cutting.net, cutting.channel_groups, layer.groups, layer.assigned)
        finished = yield from cutting.fine_tune(cutting.without(removed), fine)
        return finished


def num_clusters(channels: int, rate: float) -> int:
    """The number of clusters of a layer with C channels: ceil(C (1 - rate)), at least one."""
    return max(1, channels - int(rate * channels + 1e-9))


def _cluster(cutting: Cutting, groups: Tensor, rate: float) -> Clustered:
    parts = parts_of(cutting.net, cutting.channel_groups, groups)
    return Clustered(groups, k_means(filters(cutting.net, parts), num_clusters(len(groups), rate)), parts)


def _cluster_pull(net: nn.Module, clustered: list[Clustered], strength: float) -> Penalty:
    """The penalty (λ/2) Σ |w_i - mean|², with λ = strength · progress."""

    def penalty(forward: Forward) -> Tensor:
        spreads = [
            spread(rows_of(net, part), layer.assigned, layer.count)
            for layer in clustered
            if layer.count < len(layer.groups)
            for part in layer.parts
        ]
        return strength * forward.progress / 2 * torch.stack(spreads).sum() if spreads else torch.zeros(())

    return penalty
