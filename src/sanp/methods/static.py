"""STATIC (paper 5.1): saliencies from one learned vector, so that every image gets the same gates.

Gates that never change are folded into the weights and the closed channels cut out, wherever that saves as much: in a
chain always; where an addition joins branches with gates of their own, the network stays gated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from sanp.binarize import SemanticHashing
from sanp.fit import Stages, Task, fit_stages, with_teacher
from sanp.methods.fold import cut_constant_gates
from sanp.methods.method import gate_as
from sanp.network import GatedNetwork
from sanp.saliency import StaticSaliency
from sanp.spm import SPM, SPMConfig


def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """SANP's module with the descriptor replaced by a constant."""
    saliency = StaticSaliency(
        in_channels, out_channels, reduction=config.reduction, bias=config.bias, start=config.start
    )
    binarize = SemanticHashing(noise=config.noise, soft_share=config.soft_share, per=config.per)
    return SPM(saliency, binarize, group=config.group if out_channels % config.group == 0 else 1)


@dataclass(frozen=True, kw_only=True)
class Static:
    """The method; it has no settings of its own."""

    name: str = "static"
    layer_adaptive: bool = True
    sample_adaptive: bool = False

    def gate(
        self, net: nn.Module, example: Any, *, spm: SPMConfig, skip: Sequence[str] = (), shortcuts: bool = True
    ) -> GatedNetwork:
        """The network with constant gates in every convolution that can have some."""
        return gate_as(self.name, make_spm, net, example, spm=spm, skip=skip, shortcuts=shortcuts)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """SANP's stages, then the fold and the cut."""
        example = task.example()
        gated = self.gate(net, example, spm=task.spm)
        yield from fit_stages(gated, with_teacher(task, net))
        return cut_constant_gates(gated, net, example) or gated
