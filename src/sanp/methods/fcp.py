"""FCP / OFCP, filter clustering (a reading of the abstract): filters of a layer in ceil(C (1 - rate)) fixed clusters.

Cross entropy + (λ/2) Σ |w_i - mean of its cluster|², batch norm scale and shift included, λ growing; then every cluster
becomes its mean filter and the next layers' kernels over it are summed, which is exact when its filters are equal; the
rest is fine-tuned. The rate is the one whose cost is the budget. Layers joined by an addition share their clusters.
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
    """λ grows so far that distances within a cluster shrink to exp(-pull) where nothing else moves them"""
    cluster_share: float = 0.5
    """share of the epochs that pull clusters together; the rest fine-tunes"""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.pull > 0:
            raise SanpError(f"pull {self.pull} must be above 0: it is how far clusters are drawn together")
        if not 0 < self.cluster_share < 1:
            raise SanpError(f"cluster_share {self.cluster_share} must be between 0 and 1: it is a share of the epochs")


@dataclass(frozen=True)
class Clustered:
    """One layer's channels in clusters."""

    groups: Tensor
    assigned: Tensor
    parts: list[Part]

    @property
    def count(self) -> int:
        """How many clusters."""
        return int(self.assigned.max()) + 1


@dataclass(frozen=True, kw_only=True)
class FCP:
    """The method."""

    name: str = "fcp"
    layer_adaptive: bool = True
    sample_adaptive: bool = False
    config: FCPConfig = field(default_factory=FCPConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """One channel in each layer must not cost more than the budget."""
        cutting = Cutting(net, task, self.name)
        cutting.check_emptying(removable_groups(cutting.channel_groups))

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Clusters, the stage that pulls them together, the merge, fine-tuning."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups)

        def removed_at(rate: float) -> set[int]:
            return {int(group) for groups in layers.values() for group in groups[num_clusters(len(groups), rate) :]}

        rate = cutting.level(removed_at, 0.0, 1.0)
        clustered = [_cluster(cutting, groups, rate) for groups in layers.values()]
        pulled, fine = epochs_in_parts(task, self.config.cluster_share, 1 - self.config.cluster_share)
        if pulled:
            distance = total_lr(task.config, pulled, steps_in(task.loader), weight=lambda progress: progress)
            strength = self.config.pull / distance if distance else 0.0  # a lone step has no time to grow
            yield plain_stage(
                "cluster", cutting.net, cutting.task, pulled, penalty=_cluster_pull(cutting.net, clustered, strength)
            )
        removed: set[int] = set()
        for layer in clustered:
            removed |= merge(cutting.net, cutting.channel_groups, layer.groups, layer.assigned)
        finished = yield from cutting.fine_tune(cutting.without(removed), fine)
        return finished


def num_clusters(channels: int, rate: float) -> int:
    """ceil(C (1 - rate)), at least one."""
    return max(1, channels - int(rate * channels + 1e-9))


def _cluster(cutting: Cutting, groups: Tensor, rate: float) -> Clustered:
    parts = parts_of(cutting.net, cutting.channel_groups, groups)
    return Clustered(groups, k_means(filters(cutting.net, parts), num_clusters(len(groups), rate)), parts)


def _cluster_pull(net: nn.Module, clustered: list[Clustered], strength: float) -> Penalty:
    """(λ/2) Σ |w_i - mean|², λ = strength · progress."""

    def penalty(forward: Forward) -> Tensor:
        spreads = [
            spread(rows_of(net, part), layer.assigned, layer.count)
            for layer in clustered
            if layer.count < len(layer.groups)
            for part in layer.parts
        ]
        return strength * forward.progress / 2 * torch.stack(spreads).sum() if spreads else torch.zeros(())

    return penalty
