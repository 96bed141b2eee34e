"""FIXED K (paper 5.1): opens the same share of channels in every layer for every image, those of highest saliency.

There is no hashing and no cost loss; open channels are still scaled by s. The share is set so that the FLOPs meet the
budget. Which channels win depends on the saliencies' order alone, so that other descriptors may suit it than SANP.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import gcd

from torch import nn

from sanp.core.checks import check_fields
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.methods.parts.density import density_stage, finish_density
from sanp.methods.parts.gating_method import GatingMethod
from sanp.spm.module import SPM, SPMConfig, predicted_saliency
from sanp.spm.top_k import TopK
from sanp.training.controller import BudgetController
from sanp.training.stage import Stage, Stages
from sanp.training.task import Task
from sanp.training.three_stages import warmup_stage


@dataclass(frozen=True, kw_only=True)
class FixedKConfig:
    """Settings of FIXED K."""

    standardize: bool | None = None
    """standardise the descriptors over the images; none: as in the section spm"""
    centre: float | None = None
    """mean of standardised descriptors; none: as in the section spm"""

    def __post_init__(self) -> None:
        check_fields(self)

    def spm(self, given: SPMConfig) -> SPMConfig:
        """The settings of the SPMs: those ``given``, with the descriptors of this method."""
        standardize = given.standardize if self.standardize is None else self.standardize
        return replace(given, standardize=standardize, centre=given.centre if self.centre is None else self.centre)


def fixed_k_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """An SPM with SANP's saliency that opens a fixed number of channels."""
    saliency = predicted_saliency(in_channels, out_channels, config)
    group = gcd(out_channels, config.group)
    return SPM(saliency, TopK(out_channels // group), most=config.most, group=group)


@dataclass(frozen=True, kw_only=True)
class FixedK(GatingMethod):
    """FIXED K as a pruning method."""

    name: str = "fixed_k"
    layer_adaptive: bool = False
    sample_adaptive: bool = True
    config: FixedKConfig = field(default_factory=FixedKConfig)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Gates the network with the descriptors of the settings, then trains it."""
        finished = yield from super().stages(net, replace(task, spm=self.config.spm(task.spm)))
        return finished

    def spm_maker(self) -> MakeSPM:
        """SPMs that open a fixed number of channels; all of them at first."""
        return fixed_k_spm

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """Warm-up, then joint training while the density falls to that of the budget."""
        kept = gated.kept_for(task.budget)
        if task.config.warmup_epochs:
            yield warmup_stage(gated, task)
        falling = BudgetController(kept, task.controller).target_at
        yield density_stage(gated, task, task.config.joint_epochs, falling)
        finish_density(gated, task, kept)
