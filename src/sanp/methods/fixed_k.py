"""FIXED K (paper 5.1): the same share of channels in every layer for every image, those of highest saliency.

No hashing and no cost loss; the channels that stay are still scaled by s. The share is that whose cost is the budget.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.methods.method import GatingMethod
from sanp.methods.parts.density import Winners, density_stage, finish_density
from sanp.spm.module import SPM, SPMConfig, predicted_saliency
from sanp.training.controller import BudgetController
from sanp.training.fitting import warmup_stage
from sanp.training.stage import Stage
from sanp.training.task import Task


def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """SANP's saliency with the winners for a binarizer."""
    saliency = predicted_saliency(in_channels, out_channels, config)
    group = gcd(out_channels, config.group)
    return SPM(saliency, Winners(out_channels // group), most=config.most, group=group)


@dataclass(frozen=True, kw_only=True)
class FixedK(GatingMethod):
    """The method; it has no settings of its own."""

    name: str = "fixed_k"
    layer_adaptive: bool = False
    sample_adaptive: bool = True

    def spm_maker(self) -> MakeSPM:
        """Winners in every layer, all of them for a start."""
        return make_spm

    def train(self, gated: GatedNetwork, task: Task, share: float) -> Iterator[Stage]:
        """Warm-up, then the density falls to that of the budget and stays."""
        if task.config.warmup_epochs:
            yield warmup_stage(gated, task)
        falling = BudgetController(share, task.controller).target_at
        yield density_stage(gated, task, task.config.joint_epochs, falling)
        finish_density(gated, task, share)
