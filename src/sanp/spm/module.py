"""The Saliency-and-Pruning Module (paper 3.1): the layer's input to a saliency and a 0/1 decision for each output."""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Literal

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.spm.binarize import Binarizer, SemanticHashing
from sanp.spm.recording import Gates
from sanp.spm.saliency import PredictedSaliency, Saliency


@dataclass(frozen=True, kw_only=True)
class SPMConfig:
    """What every Saliency-and-Pruning Module is made of."""

    reduction: int = 4
    """r: the hidden layer has C_out / r units"""
    bias: float | None = 1.0
    """what every saliency starts from; none gives the paper's predictor without a bias"""
    start: float = 0.0
    """scale of W2 at the start; at 0 with a bias of 1, inserting the modules does not change the network"""
    standardize: bool = True
    """give each descriptor a mean of ``centre`` and a deviation of 1 over the images, so that the image can decide"""
    centre: float = 0.0
    """the mean of standardised descriptors: at 1 less of a saliency depends on the image, and few steps go further"""
    noise: float = 0.1
    """deviation of the Gaussian noise on saliencies in training (paper: 1)"""
    soft_share: float = 0.2
    """share of samples whose soft gates go forward in training (paper: 0.5)"""
    per: Literal["sample", "element"] = "sample"
    """draw the soft-or-hard coin for a whole sample or for every channel of it"""
    most: float | None = 8.0
    """features are multiplied by no more than this; none: by the saliency, however large (paper)"""
    group: int = 1
    """so many neighbouring channels decide together; in a layer whose channels it does not divide, gcd(C_out, group)"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.reduction < 1:
            raise SanpError(
                f"reduction {self.reduction} must be at least 1: the hidden layer has C_out / reduction units"
            )
        if self.noise < 0:
            raise SanpError(f"noise {self.noise} must not be negative: it is a standard deviation")
        if not 0 <= self.soft_share <= 1:
            raise SanpError(f"soft_share {self.soft_share} must be in [0, 1]: it is a share of the samples")
        if self.most is not None and not self.most > 0:
            raise SanpError(f"most {self.most} must be above 0: it is the largest factor of a channel, or none")
        if self.group < 1:
            raise SanpError(f"group {self.group} must be at least 1: it is a number of channels")


BEFORE: dict[str, float | None] = {"most": None}
"""Settings that older files and runs do not name, as they were then."""


class SPM(nn.Module):
    """A saliency and a binarizer, composed; ``threshold`` moves the decision (0 as trained, see ``set_budget``)."""

    threshold: Tensor

    def __init__(
        self,
        saliency: Saliency,
        binarize: Binarizer,
        *,
        most: float | None = None,
        group: int = 1,
        scales: bool = True,
    ) -> None:
        super().__init__()
        self.saliency = saliency
        self.binarize = binarize
        self.most, self.scales = most, scales
        self.group = group
        self.register_buffer("threshold", torch.zeros(()))

    @property
    def flops(self) -> int:
        """Multiply-adds of the prediction for one image, without the mean over positions."""
        return self.saliency.flops

    @property
    def level(self) -> float:
        """What opens fewer channels the higher it is: the threshold, or the share of channels that does not win."""
        return self.binarize.level(self.threshold)

    @level.setter
    def level(self, level: float) -> None:
        self.binarize.set_level(self.threshold, level)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SPM":
        """Moves to a device as any module, but stays float32 when a network is made half precision.

        Decisions must not depend on rounding; :class:`PredictedSaliency` says the same under autocast.
        """

        def kept(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            low = moved.dtype in (torch.float16, torch.bfloat16) and tensor.dtype in (torch.float32, torch.float64)
            return tensor.to(moved.device) if low else moved

        super()._apply(kept, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: Tensor) -> Gates:  # (N, C_in, ...)
        """What to do with each output channel for each sample."""
        saliency = self.saliency(x)  # (N, C_out)
        score = self._grouped(saliency - self.threshold)
        applied = self.binarize(score)
        soft = self.binarize.soft(score.detach()) if self.training else None
        decision = applied.detach() if soft is None else self.binarize.decide(score)
        return Gates(
            saliency,
            self._each(decision),
            self._each(applied),
            most=self.most,
            scales=self.scales,
            soft=None if soft is None else self._each(soft),
        )

    def score(self, gates: Gates) -> Tensor:
        """What the decisions of a forward were made of: (N, C_out / group), open where it is high."""
        return self._grouped(gates.saliency - self.threshold)

    def _grouped(self, score: Tensor) -> Tensor:
        """The mean score of every group of neighbouring channels."""
        if self.group == 1:
            return score
        return score.reshape(len(score), -1, self.group).mean(2)  # (N, C_out / group)

    def _each(self, decision: Tensor) -> Tensor:
        """A group's decision for each of its channels."""
        return decision if self.group == 1 else decision.repeat_interleave(self.group, dim=1)


def closing_rate(steps: int) -> float:
    """A learning rate at which Adam can take a saliency from its start at 1 to below 0 in so many steps.

    A handful of steps cannot do that at any rate that learns something: there the thresholds meet the budget.
    """
    return min(5e-2, max(3e-3, 1 / max(1, steps)))


def predicted_saliency(in_channels: int, out_channels: int, config: SPMConfig) -> PredictedSaliency:
    """The saliency function with the configured settings."""
    return PredictedSaliency(
        in_channels,
        out_channels,
        reduction=config.reduction,
        bias=config.bias,
        start=config.start,
        standardize=config.standardize,
        centre=config.centre,
    )


def build_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """The SPM that SANP puts into a convolution."""
    return hashed(predicted_saliency(in_channels, out_channels, config), out_channels, config)


def hashed(saliency: Saliency, out_channels: int, config: SPMConfig, *, scales: bool = True) -> SPM:
    """An SPM that decides by Improved Semantic Hashing of any saliency."""
    binarize = SemanticHashing(noise=config.noise, soft_share=config.soft_share, per=config.per)
    return SPM(saliency, binarize, most=config.most, group=gcd(out_channels, config.group), scales=scales)
