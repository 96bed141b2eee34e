"""NS, Network Slimming (Liu et al., 2017): trains with w Σ|γ| over the batch norm scales γ, then removes small ones.

Channels with |γ| below one threshold for the whole network are cut out, and the rest is fine-tuned. The threshold is
set so that the FLOPs meet the budget. A channel with several scales is removed if all of them are below the threshold.
Every layer keeps at least one channel.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.methods.cutting.cutting import Cutting, check_emptying
from sanp.methods.cutting.ranking import below, ranked, removable_groups
from sanp.methods.parts.retrain import epochs_in_parts, plain_stage, total_lr
from sanp.methods.parts.scratch import scratch_stage, untrained
from sanp.training.stage import Stage, Stages, steps_in
from sanp.training.task import Task

SEED = 0
"""of the new weights, if it starts from scratch"""
PAPER_SPARSITY = 1e-4
"""w in the paper of Network Slimming"""
PAPER_TOTAL_LR = 66_000
"""sum of the learning rates in the paper of Network Slimming, times 1 / (1 - 0.9) for the momentum: 160 epochs of 782
steps at 0.1, at a tenth of that from 50 % of the epochs on, at a hundredth from 75 % on"""


@dataclass(frozen=True, kw_only=True)
class NSConfig:
    """Settings of Network Slimming."""

    sparsity: float | None = None
    """weight of Σ|γ|; none: 1e-4 as in its paper, raised for shorter training so that it has the same effect"""
    highest: float = 1e-2
    """upper bound of the raised weight; above it the penalty would outweigh the task's loss"""
    sparse_share: float = 0.5
    """share of the epochs that train with the penalty; the others fine-tune"""

    scratch: bool = False
    """start from new weights and train with the penalty in pretraining too, as the paper does"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sparsity is not None and self.sparsity < 0:
            raise SanpError(f"sparsity {self.sparsity} must not be negative: it is the weight of a penalty")
        if not 0 < self.sparse_share < 1:
            raise SanpError(f"sparse_share {self.sparse_share} must be between 0 and 1: it is a share of the epochs")

    def weight(self, total_lr: float) -> float:
        """The weight of Σ|γ| for a stage whose learning rates add up to ``total_lr``, momentum included."""
        if self.sparsity is not None:
            return self.sparsity
        return min(self.highest, PAPER_SPARSITY * max(1.0, PAPER_TOTAL_LR / total_lr))


@dataclass(frozen=True, kw_only=True)
class NS:
    """Network Slimming as a pruning method."""

    name: str = "ns"
    layer_adaptive: bool = True
    sample_adaptive: bool = False
    simplified: str = ""
    config: NSConfig = field(default_factory=NSConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one channel in each layer already exceeds the budget."""
        check_emptying(net, task, self.name)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Trains with the penalty, cuts the network, fine-tunes it."""
        cutting = Cutting(net, task, self.name)
        scales = _scales(cutting)
        cutting.check_reach(below(cutting.channel_groups, scale_scores(cutting, scales), float("inf")))
        sparse, fine = epochs_in_parts(task, self.config.sparse_share, 1 - self.config.sparse_share)
        if self.config.scratch or sparse:
            yield self._sparsity_stage(cutting, scales, sparse)
        scores = ranked(removable_groups(cutting.channel_groups), scale_scores(cutting, scales))
        finished = yield from cutting.fine_tune(cutting.without(cutting.least_of_all(scores)), fine)
        return finished

    def _sparsity_stage(self, cutting: Cutting, scales: dict[str, Tensor], epochs: int) -> Stage:
        """The stage with the penalty; from scratch, the epochs of pretraining are added and its rate is used."""
        task, steps = cutting.task, steps_in(cutting.task.loader)
        if not self.config.scratch:
            weight = self.config.weight(total_lr(task.config, epochs, steps))
            return plain_stage("sparsity", cutting.net, task, epochs, penalty=lambda _: weight * scale_penalty(scales))
        cutting.net.load_state_dict(untrained(cutting.net, SEED).state_dict())
        config = replace(task.config, lr=task.config.pretrain_lr)
        epochs += config.pretrain_epochs
        strength = self.config.weight(total_lr(config, epochs, steps))
        return scratch_stage(
            "sparsity", cutting.net, task, epochs, distill=False, penalty=lambda _: strength * scale_penalty(scales)
        )


def scale_penalty(scales: dict[str, Tensor]) -> Tensor:
    """Σ|γ| over the scales of all batch norms, given by path; its gradient is sign(γ), which is 0 at 0."""
    return torch.stack([scale.abs().sum() for scale in scales.values()]).sum()


def scale_scores(cutting: Cutting, scales: dict[str, Tensor]) -> dict[int, float]:
    """The largest |γ| of each removable channel group that has scales; ``scales`` are given by batch norm path."""
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
    """The scales of the batch norms that follow convolutions, by path; an error if there are none."""
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
