"""FBS, Feature Boosting and Suppression (Gao et al., 2019): out = relu(π(x) (norm(conv(x)) + β)), π = winners of g(x).

g = relu(φ ss(x) + ρ), ss = the mean of each input channel's absolute values, one linear layer with weights N(0, 0.05),
ρ = 1 at the start; π keeps the ceil(density C) largest of g. Loss + 1e-8 Σ|g|. The density goes down by 0.1 at a time,
each from the last, to the one whose cost is the budget. g takes the place of batch norm's scale: here the trained
scale stays as a constant factor, so that inserting g changes nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.methods.method import GatingMethod
from sanp.methods.parts.density import density_stage, finish_density
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.spm.binarize import TopK
from sanp.spm.module import SPM, SPMConfig
from sanp.spm.saliency import FoldedSaliency, Saliency
from sanp.training.stage import Stage
from sanp.training.task import Task
from sanp.training.term import Forward


@dataclass(frozen=True, kw_only=True)
class FBSConfig:
    """Settings of Feature Boosting and Suppression."""

    lasso: float = 1e-8
    """weight of Σ|g|"""
    fall: float = 0.1
    """how far the density goes down at a time"""
    falling: float = 0.5
    """share of the steps over which it goes down"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.lasso < 0:
            raise SanpError(f"lasso {self.lasso} must not be negative: it is the weight of a penalty")
        if not 0 < self.fall < 1 or not 0 <= self.falling <= 1:
            raise SanpError(f"fall {self.fall} and falling {self.falling} are shares: give them between 0 and 1")

    def target_at(self, kept: float, progress: float) -> float:
        """The cost to come to: that of densities 0.1 apart, from 1 down to the budget's (cost = density²)."""
        last = math.sqrt(kept)
        rungs = max(1, math.ceil((1 - last) / self.fall - 1e-9))
        done = rungs if progress >= self.falling else 1 + int(rungs * progress / self.falling)
        return max(kept, (1 - self.fall * done) ** 2) if done < rungs else kept


class BoostingSaliency(Saliency):
    """g(x): how much each output channel is to be amplified."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.phi = nn.Linear(in_channels, out_channels)
        nn.init.normal_(self.phi.weight, std=0.05)
        nn.init.ones_(self.phi.bias)

    @property
    def flops(self) -> int:
        """Multiply-adds of the linear layer for one image."""
        return self.phi.weight.numel()

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, C_out)
        """relu(φ ss(x) + ρ), in float32 under autocast too."""
        with torch.autocast(x.device.type, enabled=False):
            ss = x.float().abs().mean(tuple(range(2, x.dim())))  # (N, C_in)
            return F.relu(self.phi(ss))

    def folded(self) -> FoldedSaliency:
        """One layer, and the channel for the second."""
        channels = self.phi.out_features
        return FoldedSaliency(self.phi.weight, self.phi.bias, torch.eye(channels), torch.zeros(channels), absolute=True)


def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """FBS's predictor and its winners; none of SANP's settings apply."""
    return SPM(BoostingSaliency(in_channels, out_channels), TopK(out_channels, round_up=True))


@dataclass(frozen=True, kw_only=True)
class FBS(GatingMethod):
    """The method."""

    name: str = "fbs"
    layer_adaptive: bool = False
    sample_adaptive: bool = True
    config: FBSConfig = field(default_factory=FBSConfig)

    def spm_maker(self) -> MakeSPM:
        """FBS's predictors, all channels winning for a start."""
        return make_spm

    def prepare(self, gated: GatedNetwork) -> None:
        """The predictors take the place of the batch norms' scales, which stay as they are."""
        for layer in gated.layers.values():
            scale = getattr(layer.norm, "weight", None)
            if isinstance(scale, nn.Parameter):
                scale.requires_grad_(False)

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """All epochs jointly, while the density goes down."""
        kept = gated.kept_for(task.budget)
        epochs = epochs_in_parts(task, 1)[0]
        yield density_stage(gated, task, epochs, lambda progress: self.config.target_at(kept, progress), self._lasso)
        finish_density(gated, task, kept)

    def _lasso(self, forward: Forward) -> Tensor:
        sums = [gate.saliency.abs().sum(1).mean() for gate in forward.gates.values()]
        return self.config.lasso * torch.stack(sums).sum()
