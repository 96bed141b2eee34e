"""The saliency function (paper 3.2): how much each output channel of a convolution matters for this input.

d = (1 / HW) Σ x(i, j)          the channel descriptor
s = W2 relu(W1 d) [+ bias]      the saliency of every output channel
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def descriptor(x: Tensor) -> Tensor:
    """The mean of every channel over all its positions, in float32 at the least whatever the precision of ``x``."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    if x.dim() < 3:
        return x.to(dtype)
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    if last and x.requires_grad:
        mean: Tensor = _Mean.apply(x, dtype)  # type: ignore[no-untyped-call]
        return mean
    # A sum's gradient is one number a channel, spread without being written out; a mean's is a whole map.
    return x.sum(tuple(range(2, x.dim())), dtype=dtype) / math.prod(x.shape[2:])  # (N, C_in)


class _Mean(torch.autograd.Function):
    """Over the positions of a channels-last map, with a gradient in that layout: torch adds any other to it slowly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.like = x.shape, x.dtype
        return x.mean((2, 3), dtype=dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        shape, dtype = ctx.like
        each = (gradient / (shape[2] * shape[3])).to(dtype)[:, :, None, None]  # (N, C_in, 1, 1)
        return each.expand(shape).contiguous(memory_format=torch.channels_last), None


class Standardize(nn.Module):
    """Gives each descriptor a deviation of 1 over the images, around ``centre``; folds into W1 afterwards.

    The descriptor of ReLU outputs varies little beside its mean, so that without this the bias decides alone and
    gates come out the same for every image. Around 0 most of a saliency is what differs between images; around 1 more
    of it is common to them, which a few hundred steps learn better (docs/log.md).
    """

    mean: Tensor
    var: Tensor

    def __init__(self, size: int, *, centre: float, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.centre, self.momentum, self.eps = centre, momentum, eps
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))

    def forward(self, d: Tensor) -> Tensor:  # (N, C_in) -> (N, C_in)
        """Batch statistics while training on more than one image, running statistics otherwise."""
        use_batch = self.training and len(d) > 1
        z = F.batch_norm(d, self.mean, self.var, training=use_batch, momentum=self.momentum, eps=self.eps)
        return z + self.centre


@dataclass(frozen=True)
class FoldedSaliency:
    """A saliency function as two matrices, everything else folded in: s = w2 relu(w1 d + b1) + b2."""

    w1: Tensor
    """(hidden, C_in); no rows for a constant saliency"""
    b1: Tensor
    w2: Tensor
    """(C_out, hidden)"""
    b2: Tensor
    absolute: bool = False
    """d is the mean of the absolute values of an input channel"""


class Saliency(nn.Module, ABC):
    """How much each output channel of a convolution matters: (N, C_in, ...) to (N, C_out)."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Multiply-adds for one image, without the mean over positions."""

    def folded(self) -> FoldedSaliency | None:
        """The same function of d for a runtime that is not torch; None where it has no such form."""
        return None

    def wake(self, generator: torch.Generator) -> None:
        """Makes the saliencies of an untrained network differ between channels and images, for a benchmark."""


class PredictedSaliency(Saliency):
    """Eq. 8, from the layer's input: sample-adaptive.

    ``bias`` is what every saliency starts from; with ``start`` = 0 it is exactly that, so that inserting the module
    does not change the network. ``None`` gives the paper's bias-free predictor.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        reduction: int,
        bias: float | None,
        start: float,
        standardize: bool,
        centre: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = max(1, out_channels // reduction)
        self.standardize = Standardize(in_channels, centre=centre) if standardize else nn.Identity()
        self.w1 = nn.Linear(in_channels, hidden, bias=False)
        self.w2 = nn.Linear(hidden, out_channels, bias=bias is not None)
        with torch.no_grad():
            self.w2.weight.mul_(start)
            if bias is not None:
                self.w2.bias.fill_(bias)

    @property
    def flops(self) -> int:
        """Multiply-adds of the two layers for one image (the mean over positions comes on top)."""
        return self.w1.weight.numel() + self.w2.weight.numel()

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, C_out)
        """The saliency of each output channel, in float32 under autocast too: decisions must not depend on rounding."""
        with torch.autocast(x.device.type, enabled=False):
            d = self.standardize(descriptor(x).to(self.w1.weight.dtype))  # (N, C_in)
            s: Tensor = self.w2(F.relu(self.w1(d)))  # (N, C_out)
            return s

    @torch.no_grad()
    def folded(self) -> FoldedSaliency:
        """The standardisation is part of W1 and of its bias."""
        w1, b1 = self.w1.weight.double(), torch.zeros(self.w1.out_features, dtype=torch.float64)
        if isinstance(self.standardize, Standardize):
            scale = (self.standardize.var.double() + self.standardize.eps).rsqrt()
            w1 = w1 * scale
            b1 = w1 @ (self.standardize.centre / scale - self.standardize.mean.double())
        b2 = torch.zeros(self.w2.out_features) if self.w2.bias is None else self.w2.bias
        return FoldedSaliency(w1, b1, self.w2.weight, b2)

    @torch.no_grad()
    def wake(self, generator: torch.Generator) -> None:
        """Random numbers for W2 where it is still zero: with it, all channels would open and close as one."""
        if bool(self.w2.weight.any()):
            return
        random = torch.randn(self.w2.weight.shape, generator=generator)
        self.w2.weight.copy_(random / self.w2.in_features**0.5)
        if self.w2.bias is not None:
            spread = torch.rand(self.w2.bias.shape, generator=generator)
            nn.init.ones_(self.w2.bias).add_(spread - 0.5)


class StaticSaliency(Saliency):
    """The STATIC ablation (paper 5.1): eq. 8 from one learned vector, so that every image gets the same saliencies."""

    def __init__(
        self, in_channels: int, out_channels: int, *, reduction: int, bias: float | None, start: float
    ) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.full((1, in_channels), 0.5))
        self.predict = PredictedSaliency(
            in_channels, out_channels, reduction=reduction, bias=bias, start=start, standardize=False
        )

    @property
    def flops(self) -> int:
        """Nothing at inference: the saliencies are constants."""
        return 0

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, C_out)
        """The same saliencies for each of the N images."""
        s: Tensor = self.predict(self.vector)
        return s.expand(len(x), -1)

    @torch.no_grad()
    def folded(self) -> FoldedSaliency:
        """A constant: nothing is read of the input."""
        constant = self.predict(self.vector)[0]
        nothing = constant.new_zeros(0, self.vector.shape[1])
        return FoldedSaliency(nothing, nothing[:, 0], constant.new_zeros(len(constant), 0), constant)
