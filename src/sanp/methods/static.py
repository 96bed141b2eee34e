"""STATIC (paper 5.1): saliencies from one learned vector, so that every image gets the same gates.

The gates alone multiply the features: a constant factor is as good as none where the weights that follow can learn it,
and under a batch norm it lets the cost drive all saliencies of a layer to just above 0, where noise decides
(docs/log.md).

Gates that never change are folded into the weights and the closed channels cut out, wherever that saves as much: in a
chain always; where an addition joins branches with gates of their own, the network stays gated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.methods.cutting.fold import cut_constant_gates
from sanp.methods.method import GatingMethod
from sanp.spm.module import SPM, SPMConfig, hashed
from sanp.spm.saliency import StaticSaliency
from sanp.training.stage import Stage
from sanp.training.task import Task

RATE = 0.01
"""The SPMs' learning rate where none is given: a channel that is the same for every image closes only when it has come
all the way from 1 to 0, and the noise of the task's gradient leaves a third of Adam's step."""

SETTLE = 0.3
"""Where it is not given: constant gates need noise to be tried on both sides of 0 (docs/log.md: 27.6 % error without
it, 24.1 with it, one seed, under the flat penalty of then)."""


def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """SANP's module with the descriptor replaced by a constant."""
    saliency = StaticSaliency(
        in_channels, out_channels, reduction=config.reduction, bias=config.bias, start=config.start
    )
    return hashed(saliency, out_channels, config, scales=False)


@dataclass(frozen=True, kw_only=True)
class Static(GatingMethod):
    """The method; it has no settings of its own."""

    name: str = "static"
    layer_adaptive: bool = True
    sample_adaptive: bool = False

    def spm_maker(self) -> MakeSPM:
        """Constant gates."""
        return make_spm

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """SANP's stages at a rate of its own, with noise until the end draws near."""
        given = task.config
        settle = SETTLE if given.settle is None else given.settle
        config = replace(given, spm_lr=given.spm_lr or RATE, settle=settle)
        yield from super().train(gated, replace(task, config=config))

    def finished(self, gated: GatedNetwork, net: nn.Module, example: Tensor) -> nn.Module:
        """The fold and the cut, where they save as much."""
        return cut_constant_gates(gated, net, example) or gated
