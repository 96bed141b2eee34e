"""FBS, Feature Boosting and Suppression (Gao et al., 2019): out = relu(π(x) (norm(conv(x)) + β)).

g(x) = relu(φ ss(x) + ρ) predicts the saliencies by one linear layer; ss(x) is the mean absolute value of each input
channel, φ starts from N(0, 0.05) and ρ from 1. π(x) keeps the ceil(density C) largest of g(x) and sets the others to 0.
The loss has a term 1e-8 Σ|g|. The density falls in steps of 0.1 to the one that meets the budget.

In FBS, g takes the place of the batch norm's scale. Here the trained scale stays as a constant factor, so that
inserting g does not change the network.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.devices import exact_on
from sanp.core.errors import SanpError
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.methods.parts.density import density_stage, finish_density
from sanp.methods.parts.gating_method import GatingMethod
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.spm.module import SPM, SPMConfig
from sanp.spm.saliency import FoldedSaliency, Saliency
from sanp.spm.top_k import TopK
from sanp.training.stage import Stage
from sanp.training.task import Task
from sanp.training.term import Forward


@dataclass(frozen=True, kw_only=True)
class FBSConfig:
    """Settings of Feature Boosting and Suppression."""

    lasso: float = 1e-8
    """weight of Σ|g| in the loss"""
    fall: float = 0.1
    """by how much the density is lowered each time"""
    falling: float = 0.5
    """share of the steps over which the density is lowered"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.lasso < 0:
            raise SanpError(f"lasso {self.lasso} must not be negative: it is the weight of a penalty")
        if not 0 < self.fall < 1 or not 0 <= self.falling <= 1:
            raise SanpError(f"fall {self.fall} and falling {self.falling} are shares: give them between 0 and 1")

    def target_at(self, kept: float, progress: float) -> float:
        """The share of the dense FLOPs that is the target when the share ``progress`` of the steps is done.

        It is that of a density which falls in steps of ``fall`` from 1 to the one of the budget ``kept``, where the
        FLOPs are taken to be proportional to density².
        """
        last = math.sqrt(kept)
        rungs = max(1, math.ceil((1 - last) / self.fall - 1e-9))
        done = rungs if progress >= self.falling else 1 + int(rungs * progress / self.falling)
        return max(kept, (1 - self.fall * done) ** 2) if done < rungs else kept


class BoostingSaliency(Saliency):
    """g(x): the predicted factor of each output channel."""

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
        """relu(φ ss(x) + ρ), in float32 even under autocast."""
        with exact_on(x):
            ss = x.float().abs().mean(tuple(range(2, x.dim())))  # (N, C_in)
            return F.relu(self.phi(ss))

    def folded(self) -> FoldedSaliency:
        """The linear layer as the first layer, and the identity as the second."""
        channels = self.phi.out_features
        return FoldedSaliency(self.phi.weight, self.phi.bias, torch.eye(channels), torch.zeros(channels), absolute=True)


def fbs_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """An SPM with FBS's predictor that opens a fixed number of channels; SANP's settings in ``config`` are not used."""
    return SPM(BoostingSaliency(in_channels, out_channels), TopK(out_channels, round_up=True))


@dataclass(frozen=True, kw_only=True)
class FBS(GatingMethod):
    """FBS as a pruning method."""

    name: str = "fbs"
    layer_adaptive: bool = False
    sample_adaptive: bool = True
    config: FBSConfig = field(default_factory=FBSConfig)

    def spm_maker(self) -> MakeSPM:
        """SPMs with FBS's predictors; all channels are open at first."""
        return fbs_spm

    def prepare(self, gated: GatedNetwork) -> None:
        """Freezes the scales of the batch norms, whose place the predictors take."""
        for layer in gated.layers.values():
            scale = getattr(layer.norm, "weight", None)
            if isinstance(scale, nn.Parameter):
                scale.requires_grad_(False)

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """Trains network and predictors for all epochs, while the density falls."""
        kept = gated.kept_for(task.budget)
        epochs = epochs_in_parts(task, 1)[0]
        yield density_stage(gated, task, epochs, lambda progress: self.config.target_at(kept, progress), self._lasso)
        finish_density(gated, task, kept)

    def _lasso(self, forward: Forward) -> Tensor:
        sums = [gate.saliency.abs().sum(1).mean() for gate in forward.gates.values()]
        return self.config.lasso * torch.stack(sums).sum()
