"""The Saliency-and-Pruning Module (paper 3.1): a saliency and a 0/1 decision for each output channel of a layer."""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Literal

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.spm.binarize import SHIFT, SLOPE, Binarizer, SemanticHashing, keep_best
from sanp.spm.recording import Gates
from sanp.spm.saliency import PredictedSaliency, Saliency


@dataclass(frozen=True, kw_only=True)
class SPMConfig:
    """Settings of the Saliency-and-Pruning Modules, the same for all layers."""

    reduction: int = 4
    """r: the hidden layer of a saliency predictor has C_out / r units"""
    bias: float | None = 1.0
    """initial bias of every saliency; none: the predictor has no bias (paper)"""
    start: float = 0.0
    """factor on the initial weights W2; at 0, with a bias of 1, inserting the modules does not change the network"""
    standardize: bool = True
    """standardise each descriptor over the images (mean: centre, deviation: 1); if not, gates hardly vary by image"""
    centre: float = 0.0
    """mean of standardised descriptors; 0: saliencies depend mostly on the image, 1: less so, better in few steps"""
    noise: float = 0.1
    """standard deviation of the Gaussian noise on the saliencies in training (paper: 1)"""
    soft_share: float = 0.2
    """share of the samples for which training uses soft gates instead of 0/1 decisions (paper: 0.5)"""
    per: Literal["sample", "element"] = "sample"
    """whether soft or 0/1 gates are drawn for a whole sample, or for each channel of it (element)"""
    most: float | None = 8.0
    """upper bound of the saliency that multiplies the features; none: no bound (paper)"""
    gradient: Literal["product", "literal"] = "product"
    """gradient of s times its gate: product: that of s s1; literal: with the gate that went forward for s1 (paper)"""
    slope: float = SLOPE
    """a of the saturating sigmoid clip(a sigmoid(s) - b, 0, 1)"""
    shift: float = SHIFT
    """b of the saturating sigmoid"""
    keep_one: bool = True
    """open the most salient channel of a layer where an image would have none (paper: no)"""
    group: int = 1
    """number of neighbouring channels that are decided together; gcd(C_out, group) in a layer of C_out channels"""

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
        if not self.shift > -0.5 or not self.slope > self.shift + 0.5:
            raise SanpError(
                f"slope {self.slope} and shift {self.shift}: clip(slope sigmoid(s) - shift, 0, 1) must pass one half; "
                "give a shift above -0.5 and a slope above shift + 0.5"
            )
        if self.group < 1:
            raise SanpError(f"group {self.group} must be at least 1: it is a number of channels")


OLDER_SETTINGS: dict[str, float | None] = {"most": None}
"""Settings that files and runs of older versions lack, with the values that those versions used."""


class SPM(nn.Module):
    """The Saliency-and-Pruning Module of one layer.

    ``saliency`` computes the saliencies from the layer's input, ``binarize`` the decisions from the scores, which are
    the saliencies minus ``threshold``. ``most`` bounds the saliency that multiplies the features; None: no bound.
    ``group`` is the number of neighbouring channels that are decided together, by their mean score. ``scales`` says
    whether the features are multiplied by the saliency too, or by the gates alone. ``gradient`` is the rule of
    :attr:`SPMConfig.gradient`.

    The threshold is 0 at first; calibration to a budget moves it.
    """

    threshold: Tensor

    def __init__(
        self,
        saliency: Saliency,
        binarize: Binarizer,
        *,
        most: float | None = None,
        group: int = 1,
        scales: bool = True,
        gradient: Literal["product", "literal"] = "product",
    ) -> None:
        super().__init__()
        self.saliency = saliency
        self.binarize = binarize
        self.most, self.scales, self.gradient = most, scales, gradient
        self.group = group
        self.register_buffer("threshold", torch.zeros(()))

    @property
    def flops(self) -> int:
        """Multiply-adds of the saliencies of one image, without the mean over positions."""
        return self.saliency.flops

    @property
    def level(self) -> float:
        """The number that calibration moves: the higher, the fewer channels are open.

        It is the threshold, or the share of closed channels where their number is fixed.
        """
        return self.binarize.level(self.threshold)

    @level.setter
    def level(self, level: float) -> None:
        self.binarize.set_level(self.threshold, level)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SPM":
        """Moves to a device like any module, but keeps its precision when the network is made half precision.

        Decisions must not depend on rounding; for the same reason :class:`PredictedSaliency` switches autocast off.
        """

        def kept(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            low = moved.dtype in (torch.float16, torch.bfloat16) and tensor.dtype in (torch.float32, torch.float64)
            return tensor.to(moved.device) if low else moved

        super()._apply(kept, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: Tensor) -> Gates:  # (N, C_in, ...)
        """The saliencies and decisions (N, C_out) for the layer's input ``x``."""
        saliency = self.saliency(x)  # (N, C_out)
        score = self._score(saliency)
        if not self.training:
            decision = self._each(self.binarize.decide(score))
            return Gates(saliency, decision, decision, most=self.most, scales=self.scales)
        drawn = self.binarize.draw(score)
        decision = drawn.decision if drawn.soft is None else self.binarize.decide(score)
        soft = self._each(drawn.soft) if drawn.soft is not None and self.gradient == "product" else None
        return Gates(
            saliency,
            self._each(decision),
            self._each(drawn.gates),
            most=self.most,
            scales=self.scales,
            soft=soft,
            drawn=self._each(drawn.decision),
        )

    def score(self, gates: Gates) -> Tensor:
        """The scores (N, C_out / group) from which the decisions in ``gates`` were made: open where they are high."""
        return self._score(gates.saliency)

    def strongest(self, gates: Gates, at_most: Tensor) -> Tensor:
        """The decisions in ``gates`` (N, C_out), but at most ``at_most`` (N,) open: those of the highest scores."""
        decision = gates.decision[:, :: self.group]
        return self._each(keep_best(decision, self._score(gates.saliency), at_most // self.group))

    def _score(self, saliency: Tensor) -> Tensor:
        """The mean score of every group of neighbouring channels."""
        edge = self.binarize.edge
        score = saliency - self.threshold - edge if edge else saliency - self.threshold
        if self.group == 1:
            return score
        return score.reshape(len(score), -1, self.group).mean(2)  # (N, C_out / group)

    def _each(self, decision: Tensor) -> Tensor:
        """Gives each channel the decision of its group."""
        return decision if self.group == 1 else decision.repeat_interleave(self.group, dim=1)


def closing_rate(steps: int) -> float:
    """A learning rate at which Adam can move a saliency from 1, where it starts, to below 0 within ``steps`` steps.

    The rate is at most 0.05, beyond which nothing is learned. In fewer than 20 steps saliencies therefore do not get
    that far, and calibrated thresholds have to meet the budget.
    """
    return min(5e-2, max(3e-3, 1 / max(1, steps)))


def predicted_saliency(in_channels: int, out_channels: int, config: SPMConfig) -> PredictedSaliency:
    """The saliency predictor (paper eq. 6) for a layer with these numbers of channels."""
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
    """SANP's SPM for a layer with these numbers of channels."""
    return hashed(predicted_saliency(in_channels, out_channels, config), out_channels, config)


def hashed(saliency: Saliency, out_channels: int, config: SPMConfig, *, scales: bool = True) -> SPM:
    """An SPM that makes decisions from any saliency by Improved Semantic Hashing.

    ``out_channels`` is the number of the layer's output channels. ``config`` holds the settings of hashing and scaling.
    ``scales`` says whether the features are multiplied by the saliency too, or by the gates alone.
    """
    binarize = SemanticHashing(
        noise=config.noise,
        soft_share=config.soft_share,
        per=config.per,
        slope=config.slope,
        shift=config.shift,
        keep_one=config.keep_one,
    )
    group = gcd(out_channels, config.group)
    return SPM(saliency, binarize, most=config.most, group=group, scales=scales, gradient=config.gradient)
