"""What operators on bytes give, computed again in whole numbers, which double precision holds."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.byte_operators import ByteAverage, ByteCombine, ByteConv, BytePool
from sanp.engine.lowering.shapes import Floats, Window

Doubles = NDArray[np.float64]
TIE = 1e-3
"""how far from a tie, in steps, rounding must be that of whole numbers"""


def activated(act: Activation, y: Doubles) -> Doubles:
    """An activation of (N, C, H, W)."""
    x = torch.from_numpy(y)
    match act.kind:
        case "none":
            return y
        case "relu":
            made = x.relu()
        case "clip":
            made = x.clamp(float(np.float32(act.a)), float(np.float32(act.b)))
        case "leaky":
            made = F.leaky_relu(x, float(np.float32(act.a)))
        case "prelu":
            assert act.slope is not None
            made = F.prelu(x, torch.from_numpy(act.slope.astype(np.float64)))
        case "silu":
            made = F.silu(x)
        case "hardswish":
            made = F.hardswish(x)
        case "sigmoid":
            made = x.sigmoid()
        case "hardsigmoid":
            made = F.hardsigmoid(x)
        case "tanh":
            made = x.tanh()
        case "gelu" | "gelu_tanh":
            made = F.gelu(x, approximate="tanh" if act.kind == "gelu_tanh" else "none")
        case "mish":
            made = F.mish(x)
        case "elu":
            made = F.elu(x, float(np.float32(act.a)))
        case other:
            raise AssertionError(other)
    return np.asarray(made.numpy())


def sums_of(conv: ByteConv, x: Doubles) -> Doubles:
    """The whole sums of a convolution; x are bytes less their zero point."""
    window = conv.window
    weight = torch.from_numpy(conv.weight.astype(np.float64))
    made = F.conv2d(_around(x, window), weight, None, window.stride, 0, window.dilation, conv.groups).numpy()
    assert np.abs(made).max(initial=0) < 2**31
    return np.asarray(made)


def _around(x: Doubles, window: Window, number: float = 0) -> Tensor:
    """A map with the zeros around it that a window reads, or with another number."""
    sides = (window.padding[1], window.after[1], window.padding[0], window.after[0])
    return F.pad(torch.from_numpy(x), sides, value=number)


def convolved(conv: ByteConv, x: Doubles, opened: Doubles, saliency: Floats, residual: Doubles | None) -> Doubles:
    """What a convolution gives before it is rounded: numbers, or with ``to_bytes`` steps of bytes with the zero point.

    ``opened`` (N, C) is 1 where a channel is computed, ``saliency`` (C,) what it is multiplied by; ``residual`` is in
    the numbers that it stands for.
    """
    inside = np.ones_like(saliency) if conv.scale_after else saliency
    factor, shift = (conv.multiplier * inside)[:, None, None], (conv.bias * inside)[:, None, None]
    sums = sums_of(conv, x).astype(np.float32).astype(np.float64)
    y = np.where(opened[..., None, None] > 0, sums * factor + shift, 0)
    y = activated(conv.act, y if residual is None else y + residual)
    if conv.scale_after:
        y = np.where(opened[..., None, None] > 0, y * saliency[:, None, None], 0)
    return y * float(np.float32(1) / conv.scale[0]) + conv.out_zero if conv.to_bytes else y


def bounds_of(conv: ByteConv) -> tuple[float, float]:
    """The least and the largest byte that a convolution writes."""
    return (0.0, 255.0) if conv.scale_after else bounds_under(conv.act, conv.scale, conv.out_zero)


def bounds_under(act: Activation, scale: Floats, zero: int) -> tuple[float, float]:
    """The least and the largest byte under an activation."""
    per_scale = np.float32(1) / scale[0]

    def step(bound: float) -> float:
        return float(np.clip(np.rint(np.float32(bound) * per_scale) + zero, 0, 255))

    if act.kind not in ("relu", "clip"):
        return 0.0, 255.0
    return (float(zero), 255.0) if act.kind == "relu" else (step(act.a), step(act.b))


def rounded_right(given: Doubles, wanted: Doubles, lowest: float = 0.0, highest: float = 255.0) -> bool:
    """Whether bytes are the nearest to these numbers; at a tie either neighbour will do."""
    cut = np.clip(wanted, lowest, highest)
    tie = np.abs(cut - np.floor(cut) - 0.5) < TIE
    near = np.abs(given - cut) <= 0.5 + TIE
    return bool(np.all(np.where(tie, near, given == np.rint(cut))))


def pooled(operator: BytePool, x: Doubles) -> Doubles:
    """The largest bytes; outside of the map lies none."""
    w = operator.window
    padded = _around(x, w, -np.inf).numpy()
    height, width = w.out(x.shape[2:])  # type: ignore[arg-type]
    best = np.full((*x.shape[:2], height, width), -np.inf)
    for y in range(w.kernel[0]):
        for z in range(w.kernel[1]):
            top, left = y * w.dilation[0], z * w.dilation[1]
            part = padded[:, :, top :: w.stride[0], left :: w.stride[1]][:, :, :height, :width]
            best = np.maximum(best, part)
    return best


def averaged(operator: ByteAverage, x: Doubles) -> Doubles:
    """Averages of bytes less their zero point, in steps of the result with its zero point; around the map lie zeros."""
    w, channels = operator.window, x.shape[1]
    height, width = w.out(x.shape[2:])  # type: ignore[arg-type]
    ones = torch.ones(channels, 1, *w.kernel, dtype=torch.float64)
    sums = F.conv2d(_around(x, w), ones, None, w.stride, 0, w.dilation, channels).numpy()
    inverse = operator.inverse.astype(np.float64).reshape(height, width)
    return np.asarray(sums * inverse * float(operator.read_scale[0]) / float(operator.scale[0]) + operator.zero)


def combined(operator: ByteCombine, values: Sequence[Doubles], live: Sequence[NDArray[np.bool_]]) -> Doubles:
    """Sums of channels of bytes less their zero points, under the activation, in steps with the zero point.

    ``live`` has for each value (N, C); a channel without a live term is zero, unless the activation fills it.
    """
    terms = np.array(operator.terms).reshape(-1, 2, 2)
    made = []
    for pair in terms:
        y = np.zeros((len(values[0]), *values[0].shape[2:]))
        exists = np.full(len(y), fills(operator.act))
        for place, channel in pair:
            if place >= 0:
                y = y + float(operator.scales[place]) * values[place][:, channel]
                exists = exists | live[place][:, channel]
        made.append((y, exists))
    y = activated(operator.act, np.stack([each for each, _ in made], 1)) / float(operator.scale[0])
    exists = np.stack([each for _, each in made], 1)
    cut = np.clip(y + operator.zero, *bounds_under(operator.act, operator.scale, operator.zero))
    return np.where(exists[..., None, None], cut, operator.zero)


def fills(act: Activation) -> bool:
    """Whether the activation of zero is another number."""
    return act.kind in ("sigmoid", "hardsigmoid") or (act.kind == "clip" and not act.a <= 0 <= act.b)


def mean(x: Doubles, scale: Floats) -> Doubles:
    """The means of bytes less their zero point, rounded once."""
    sums = x.sum((2, 3))
    return (sums / (x.shape[2] * x.shape[3]) * float(scale[0])).astype(np.float32).astype(np.float64)
