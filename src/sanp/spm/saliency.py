"""The saliency function (paper 3.2): how much each output channel of a convolution matters for this input.

d = (1 / HW) Σ x(i, j)          the channel descriptor
s = W2 relu(W1 d) [+ bias]      the saliency of every output channel
"""

import math
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


class PredictedSaliency(nn.Module):
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


class StaticSaliency(nn.Module):
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
