"""NS, Network Slimming (Liu et al., 2017): cross entropy + w Σ|γ| over the batch norm scales, one threshold for all.

The channels below the threshold are cut out and the rest is fine-tuned. The threshold is the one whose cost is the
budget; a channel that several scales share goes when all of them are below it; no layer loses its last channel.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.methods.cutting.cutting import Cutting
from sanp.methods.cutting.ranking import below, ranked, removable_groups
from sanp.methods.parts.retrain import epochs_in_parts, plain_stage, total_lr
from sanp.training.stage import Stages, steps_in
from sanp.training.task import Task

PAPER_SPARSITY = 1e-4
PAPER_TOTAL_LR = 66_000
"""Σ lr of its 160 epochs of 782 steps at 0.1, a tenth from 50 % and a hundredth from 75 % on, by 1 / (1 - 0.9)"""


@dataclass(frozen=True, kw_only=True)
class NSConfig:
    """Settings of Network Slimming."""

    sparsity: float | None = None
    """weight of Σ|γ|; none gives the paper's 1e-4, raised in shorter training so that it pulls as far in all"""
    highest: float = 1e-2
    """the weight is not raised above this: beyond, the scales follow it and not the task"""
    sparse_share: float = 0.5
    """share of the epochs that train with the penalty; the rest fine-tunes"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sparsity is not None and self.sparsity < 0:
            raise SanpError(f"sparsity {self.sparsity} must not be negative: it is the weight of a penalty")
        if not 0 < self.sparse_share < 1:
            raise SanpError(f"sparse_share {self.sparse_share} must be between 0 and 1: it is a share of the epochs")

    def weight(self, total_lr: float) -> float:
        """The weight for a stage whose learning rates add up to this."""
        if self.sparsity is not None:
            return self.sparsity
        return min(self.highest, PAPER_SPARSITY * max(1.0, PAPER_TOTAL_LR / total_lr))


@dataclass(frozen=True, kw_only=True)
class NS:
    """The method."""

    name: str = "ns"
    layer_adaptive: bool = True
    sample_adaptive: bool = False
    config: NSConfig = field(default_factory=NSConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """One channel in each layer must not cost more than the budget."""
        cutting = Cutting(net, task, self.name)
        cutting.check_emptying(removable_groups(cutting.channel_groups))

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Sparsity training, the cut, fine-tuning."""
        cutting = Cutting(net, task, self.name)
        scales = _scales(cutting)
        cutting.check_reach(below(cutting.channel_groups, scale_scores(cutting, scales), float("inf")))
        sparse, fine = epochs_in_parts(task, self.config.sparse_share, 1 - self.config.sparse_share)
        weight = self.config.weight(total_lr(task.config, sparse, steps_in(task.loader)))
        if sparse:
            yield plain_stage(
                "sparsity", cutting.net, cutting.task, sparse, penalty=lambda _: weight * scale_penalty(scales)
            )
        scores = ranked(removable_groups(cutting.channel_groups), scale_scores(cutting, scales))

        def removed_at(threshold: float) -> set[int]:
            return below(cutting.channel_groups, scores, threshold)

        threshold = cutting.level(removed_at, -1.0, max(scores.values()))
        finished = yield from cutting.fine_tune(cutting.without(removed_at(threshold)), fine)
        return finished


def scale_penalty(scales: dict[str, Tensor]) -> Tensor:
    """Σ|γ|; its gradient is the subgradient sign(γ), 0 at 0."""
    return torch.stack([scale.abs().sum() for scale in scales.values()]).sum()


def scale_scores(cutting: Cutting, scales: dict[str, Tensor]) -> dict[int, float]:
    """Of each channel that may go and has a scale, its largest |γ|."""
    channel_groups = cutting.channel_groups
    removable = {int(group) for groups in removable_groups(channel_groups).values() for group in groups}
    scores: dict[int, float] = {}
    scaled: set[int] = set()
    for path, scale in scales.items():
        for group, size in zip(
            channel_groups.groups_of(channel_groups.members[path].outputs).tolist(),
            scale.detach().abs().tolist(),
            strict=True,
        ):
            scaled.add(group)
            scores[group] = max(size, scores.get(group, 0.0))
    return {group: score for group, score in scores.items() if group in removable & scaled}


def _scales(cutting: Cutting) -> dict[str, Tensor]:
    """The scales of the batch norms that follow convolutions with channels that may go."""
    norms = {
        cutting.channel_groups.norm_of[path]
        for path in cutting.channel_groups.convs
        if path in cutting.channel_groups.norm_of
    }
    scales = {path: cutting.module(path).weight for path in sorted(norms)}
    scales = {path: scale for path, scale in scales.items() if isinstance(scale, Tensor)}
    if not scales:
        raise SanpError("ns prunes by the scales of batch norms, and this network has none: choose l1, fcp or sanp")
    return scales
