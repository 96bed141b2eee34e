"""STATIC (paper 5.1): the saliencies come from one learned vector, so that every image gets the same gates.

The features are multiplied by the gates alone, not by the saliencies. A constant factor adds nothing that the weights
could not learn. And with a batch norm after it, the cost loss could lower all saliencies of a layer to just above 0
without harm to the output, where noise decides which channels are open (docs/log.md).

Since the gates never change, they are folded into the weights and the closed channels are cut out, if that saves at
least as many FLOPs. It does in a chain of layers; where an addition joins gated branches, the network may stay gated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.methods.cutting.fold import cut_constant_gates
from sanp.methods.parts.gating_method import GatingMethod
from sanp.spm.module import SPM, SPMConfig, hashed
from sanp.spm.saliency import StaticSaliency
from sanp.training.stage import Stage
from sanp.training.task import Task

RATE = 0.01
"""The learning rate of the SPMs if none is given. A gate that is the same for every image closes only when its saliency
has moved all the way from 1 to 0, and with the noise of the task's gradient it moves by a third of Adam's step."""

SETTLE = 0.3
"""The setting ``settle`` if it is not given. Only with noise are constant gates tried both open and closed: the error
was 27.6 % without noise, 24.1 % with it (docs/log.md; one seed, an earlier and flatter penalty)."""


@dataclass(frozen=True, kw_only=True)
class StaticConfig:
    """Settings of STATIC."""

    scales: bool = False
    """multiply the features by the saliency as well as by the gates (paper)"""

    def __post_init__(self) -> None:
        check_fields(self)


def static_spm(in_channels: int, out_channels: int, config: SPMConfig, *, scales: bool = False) -> SPM:
    """An SPM like SANP's, but with a learned constant in place of the descriptor."""
    saliency = StaticSaliency(
        in_channels, out_channels, reduction=config.reduction, bias=config.bias, start=config.start
    )
    return hashed(saliency, out_channels, config, scales=scales)


@dataclass(frozen=True, kw_only=True)
class Static(GatingMethod):
    """STATIC as a pruning method."""

    name: str = "static"
    layer_adaptive: bool = True
    sample_adaptive: bool = False
    config: StaticConfig = field(default_factory=StaticConfig)

    def spm_maker(self) -> MakeSPM:
        """SPMs with constant gates."""
        return partial(static_spm, scales=self.config.scales)

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """The stages of SANP, by default with the learning rate ``RATE`` and noise until the last share ``SETTLE``."""
        given = task.config
        settle = SETTLE if given.settle is None else given.settle
        config = replace(given, spm_lr=given.spm_lr or RATE, settle=settle)
        yield from super().train(gated, replace(task, config=config))

    def finished(self, gated: GatedNetwork, net: nn.Module, example: Tensor) -> nn.Module:
        """The cut network if it saves at least as many FLOPs, else the gated one."""
        return cut_constant_gates(gated, net, example) or gated
