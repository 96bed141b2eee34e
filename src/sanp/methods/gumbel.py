"""Gumbel gates (as in Bejnordi et al., 2020): channels open with the probability σ(s), and the loss has a FLOPs target.

In training a channel is open where s + ξ > 0, with ξ from the logistic distribution, which is the difference of two
Gumbel variables; the gradient is that of σ((s + ξ) / τ), with τ = 2/3. Evaluation opens the channels with s > 0. The
features are multiplied by the gates alone. The loss is the task's + strength · (kept - target)², where kept is the
share of the FLOPs that the gates of the step compute; the target falls from 1 to the budget as SANP's does. At the end
the thresholds are calibrated like SANP's. The batch-shaping loss of that paper is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import gcd

import torch
from torch import Tensor

from sanp.core.batch_slice import draw_for_batch
from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.gating.accounting import mean_kept
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.methods.parts.gating_method import GatingMethod
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.spm.binarize import AboveZero, Drawn, at_least_one
from sanp.spm.module import SPM, SPMConfig, predicted_saliency
from sanp.spm.recording import applied_of, decisions_of
from sanp.training.controller import BudgetController
from sanp.training.finish import finish
from sanp.training.optimizers import joint_optimizers
from sanp.training.stage import Stage, steps_in
from sanp.training.task import Task
from sanp.training.term import Contribution, Forward, stage_with_term


@dataclass(frozen=True, kw_only=True)
class GumbelConfig:
    """Settings of Gumbel gates."""

    temperature: float = 2 / 3
    """τ: the lower, the steeper are the soft gates of the gradient"""
    strength: float = 10.0
    """weight of (kept - target)² in the loss"""
    start: float = 2.0
    """s of every channel at the start; a channel is open with the probability σ(s)"""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.temperature > 0 or self.strength < 0:
            raise SanpError(
                f"temperature {self.temperature} must be above 0 and strength {self.strength} must not be negative"
            )


def gumbel_gates(score: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """1 where score + noise is above 0, with the gradient of σ((score + noise) / temperature); (N, C) each.

    Every sample has at least one open channel.
    """
    z = score + noise
    soft = torch.sigmoid(z / temperature)
    hard = at_least_one((z.detach() > 0).to(z.dtype), z.detach())
    return hard + soft - soft.detach()


class GumbelGates(AboveZero):
    """Random gates in training; in evaluation a plain threshold at 0."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def draw(self, score: Tensor) -> Drawn:
        """The gates of a training step: those of :func:`gumbel_gates` with fresh noise."""
        share = draw_for_batch(lambda shape: torch.rand(shape, dtype=score.dtype, device=score.device), score.shape)
        noise = torch.logit(share, eps=1e-6)
        gates = gumbel_gates(score, noise, self.temperature)
        soft = torch.sigmoid((score.detach() + noise) / self.temperature)
        return Drawn(gates, (gates.detach() > 0.5).to(gates.dtype), soft)


class FlopsTarget:
    """The loss strength · (kept - target)², whose target falls to the budget with the share of the steps done."""

    def __init__(self, gated: GatedNetwork, controller: BudgetController, strength: float) -> None:
        self.gated, self.controller, self.strength = gated, controller, strength

    def contribute(self, forward: Forward) -> Contribution:
        """The loss of this step."""
        target = self.controller.target_at(forward.progress)
        kept = self.gated.cost.per_sample(applied_of(forward.gates)).mean() / self.gated.dense_flops
        shown = mean_kept(self.gated.cost, decisions_of(forward.gates))
        return Contribution(self.strength * (kept - target).square().float(), shown, target, self.strength)


@dataclass(frozen=True, kw_only=True)
class Gumbel(GatingMethod):
    """Gumbel gates as a pruning method."""

    name: str = "gumbel"
    layer_adaptive: bool = True
    sample_adaptive: bool = True
    config: GumbelConfig = field(default_factory=GumbelConfig)

    def spm_maker(self) -> MakeSPM:
        """SPMs with SANP's saliencies and Gumbel gates."""

        def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
            saliency = predicted_saliency(in_channels, out_channels, replace(config, bias=self.config.start))
            group = gcd(out_channels, config.group)
            return SPM(saliency, GumbelGates(self.config.temperature), group=group, scales=False)

        return make_spm

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """Trains network and SPMs for all epochs, then calibrates the thresholds."""
        kept, config = gated.kept_for(task.budget), task.config
        epochs = epochs_in_parts(task, 1)[0]
        optimizers = joint_optimizers(gated, config, max(1, epochs * steps_in(task.loader)))
        term = FlopsTarget(gated, BudgetController(kept, task.controller), self.config.strength)
        yield stage_with_term("joint", gated, task, epochs, optimizers, term)
        finish(gated, task, kept)
