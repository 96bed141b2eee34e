"""The saliency function (paper 3.2): how much each output channel of a convolution matters for this input.

d = (1 / HW) Σ x(i, j)          eq. 5: the channel descriptor
s = W2 relu(W1 d) [+ bias]      eq. 6: the saliency of each output channel; the bias is not in the paper
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.devices import exact_on

AT_A_TIME = 2**19
"""values of a feature map that are summed at a time; as float32 they fit into a core's own cache"""


def descriptor(x: Tensor) -> Tensor:
    """The mean of each channel of ``x`` over all its positions (N, C_in), computed in float32 or better."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    if x.dim() < 3:
        return x.to(dtype)
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    if last and x.requires_grad:
        mean: Tensor = _Mean.apply(x, dtype)  # type: ignore[no-untyped-call]
        return mean
    # The gradient of a sum is one number for each channel, expanded without a copy; that of a mean is a whole map.
    return _sums(x, dtype) / math.prod(x.shape[2:])  # (N, C_in)


def _sums(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of each channel of ``x`` over all its positions (N, C_in).

    PyTorch sums a map of lower precision by a whole copy of it in ``dtype``, whose memory it gets from the system anew
    every time. Without gradients, one thread therefore does it for a few images at a time; each has the same sum.
    Several threads would wait for each other after every part.
    """
    positions = tuple(range(2, x.dim()))
    whole = dtype == x.dtype or x.requires_grad or x.numel() <= AT_A_TIME
    if whole or torch.get_num_threads() > 1 or x.device.type != "cpu" or torch.compiler.is_compiling():
        return x.sum(positions, dtype=dtype)
    images = max(1, AT_A_TIME // math.prod(x.shape[1:]))
    return torch.cat([part.sum(positions, dtype=dtype) for part in x.split(images)])


class _Mean(torch.autograd.Function):
    """The mean over the positions of a channels-last map; its gradient is channels-last too, since torch adds gradients
    of different layouts slowly."""

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
    """Standardises each descriptor over the images: mean ``centre``, deviation 1. It can be folded into W1 later.

    Descriptors of ReLU outputs vary little compared with their mean. Without this, gates are nearly the same for every
    image. With ``centre`` 0, a saliency consists mostly of what differs between images; with 1, more of it is common to
    all images, which a few hundred steps learn better (docs/log.md).

    ``size`` is the number of descriptors; ``momentum`` and ``eps`` are those of a batch norm.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, size: int, *, centre: float, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.centre, self.momentum, self.eps = centre, momentum, eps
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))

    def forward(self, d: Tensor) -> Tensor:  # (N, C_in) -> (N, C_in)
        """Uses the statistics of the batch in training with more than one image, running statistics otherwise."""
        use_batch = self.training and len(d) > 1
        z = F.batch_norm(d, self.mean, self.var, training=use_batch, momentum=self.momentum, eps=self.eps)
        return z + self.centre


@dataclass(frozen=True)
class FoldedSaliency:
    """A saliency function as two linear layers with all else folded into them: s = w2 relu(w1 d + b1) + b2."""

    w1: Tensor
    """(hidden, C_in); hidden is 0 for a constant saliency"""
    b1: Tensor
    """(hidden,)"""
    w2: Tensor
    """(C_out, hidden)"""
    b2: Tensor
    """(C_out,)"""
    absolute: bool = False
    """d is the mean of the absolute values of each input channel, not of the values"""


class Saliency(nn.Module, ABC):
    """A saliency function: from a layer's input (N, C_in, ...) to a saliency for each output channel (N, C_out)."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Multiply-adds for one image, without the mean over positions."""

    def folded(self) -> FoldedSaliency | None:
        """The same function as two linear layers, for the engine and other runtimes; None if it has no such form."""
        return None

    def shift(self, by: Tensor) -> bool:
        """Adds ``by`` (C_out,) to the saliency of each channel, for every image; false if this function cannot."""
        return False

    def fix(self, channels: Tensor, value: float) -> bool:
        """Gives the channels that ``channels`` (C_out,) marks the saliency ``value`` for every image; false if this
        function cannot."""
        return False

    def wake(self, generator: torch.Generator) -> None:
        """Makes the saliencies of an untrained network differ between channels and images, for a benchmark.

        ``generator`` draws the random numbers. Does nothing where the saliencies differ already.
        """


class PredictedSaliency(Saliency):
    """The saliency function of the paper (eq. 6): from the layer's input, so it differs between samples.

    ``reduction`` is r: there are ``out_channels // r`` hidden units. ``bias`` is the initial bias of every saliency;
    None leaves the bias out, as in the paper. ``start`` is a factor on the initial weights W2; with 0 every saliency is
    exactly the bias at first, so that inserting the module does not change the network. ``standardize`` standardises
    the descriptors around ``centre``, see :class:`Standardize`.
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
        """Multiply-adds of the two layers for one image, without the mean over positions."""
        return self.w1.weight.numel() + self.w2.weight.numel()

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, C_out)
        """The saliencies, in float32 even under autocast: decisions must not depend on rounding."""
        with exact_on(x):
            d = self.standardize(descriptor(x).to(self.w1.weight.dtype))  # (N, C_in)
            s: Tensor = self.w2(F.relu(self.w1(d)))  # (N, C_out)
            return s

    @torch.no_grad()
    def folded(self) -> FoldedSaliency:
        """The same function with the standardisation folded into W1 and its bias."""
        w1, b1 = self.w1.weight.double(), torch.zeros(self.w1.out_features, dtype=torch.float64)
        if isinstance(self.standardize, Standardize):
            scale = (self.standardize.var.double() + self.standardize.eps).rsqrt()
            w1 = w1 * scale
            b1 = w1 @ (self.standardize.centre / scale - self.standardize.mean.double())
        b2 = torch.zeros(self.w2.out_features) if self.w2.bias is None else self.w2.bias
        return FoldedSaliency(w1, b1, self.w2.weight, b2)

    @torch.no_grad()
    def shift(self, by: Tensor) -> bool:
        """Moves the biases; false without biases, as in the paper."""
        if self.w2.bias is None:
            return False
        self.w2.bias.data.add_(by)
        return True

    @torch.no_grad()
    def fix(self, channels: Tensor, value: float) -> bool:
        """Sets rows of W2 to zero and their biases to the value; false without biases, as in the paper."""
        if self.w2.bias is None:
            return False
        self.w2.weight[channels] = 0
        self.w2.bias[channels] = value
        return True

    @torch.no_grad()
    def wake(self, generator: torch.Generator) -> None:
        """Draws W2 and the biases at random if W2 is still zero, where all channels would open and close together."""
        if bool(self.w2.weight.any()):
            return
        random = torch.randn(self.w2.weight.shape, generator=generator)
        self.w2.weight.copy_(random / self.w2.in_features**0.5)
        if self.w2.bias is not None:
            spread = torch.rand(self.w2.bias.shape, generator=generator)
            nn.init.ones_(self.w2.bias).add_((spread - 0.5).to(self.w2.bias))


class StaticSaliency(Saliency):
    """The saliency function of STATIC (paper 5.1): eq. 6 of a learned vector, so the same saliencies for every image.

    The arguments are those of :class:`PredictedSaliency`.
    """

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
        """0, since the saliencies are constants at inference."""
        return 0

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, C_out)
        """The same saliencies for each of the N images."""
        s: Tensor = self.predict(self.vector)
        return s.expand(len(x), -1)

    @torch.no_grad()
    def folded(self) -> FoldedSaliency:
        """The constant saliencies as the bias of the second layer; the input is not used."""
        constant = self.predict(self.vector)[0]
        nothing = constant.new_zeros(0, self.vector.shape[1])
        return FoldedSaliency(nothing, nothing[:, 0], constant.new_zeros(len(constant), 0), constant)
