"""FIXED K (paper 5.1): the same share of channels in every layer for every image, those of highest saliency.

No hashing and no cost loss; the channels that stay are still scaled by s. The share is that whose cost is the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from sanp.budget import BudgetController, parse_budget
from sanp.fit import Stages, Task, warmup_stage, with_teacher
from sanp.methods.density import Winners, calibrate_density, density_stage
from sanp.methods.method import gate_as
from sanp.methods.retrain import finish_norms
from sanp.network import GatedNetwork
from sanp.spm import SPM, SPMConfig, predicted_saliency


def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """SANP's saliency with the winners for a binarizer."""
    saliency = predicted_saliency(in_channels, out_channels, config)
    group = config.group if out_channels % config.group == 0 else 1
    return SPM(saliency, Winners(out_channels // group), group=group)


@dataclass(frozen=True, kw_only=True)
class FixedK:
    """The method; it has no settings of its own."""

    name: str = "fixed_k"
    layer_adaptive: bool = False
    sample_adaptive: bool = True

    def gate(
        self, net: nn.Module, example: Any, *, spm: SPMConfig, skip: Sequence[str] = (), shortcuts: bool = True
    ) -> GatedNetwork:
        """The network with winners in every layer, all of them for a start."""
        return gate_as(self.name, make_spm, net, example, spm=spm, skip=skip, shortcuts=shortcuts)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Warm-up, then the density falls to that of the budget and stays."""
        gated = self.gate(net, task.example(), spm=task.spm)
        share = gated.share(task.budget)
        gated.budget = parse_budget(task.budget)
        task = with_teacher(task, net)
        if task.config.warmup_epochs:
            yield warmup_stage(gated, task)
        falling = BudgetController(share, task.controller).target_at
        yield density_stage(gated, task, task.config.joint_epochs, falling)
        finish_norms(gated, task)
        calibrate_density(gated, task, share)
        return gated
