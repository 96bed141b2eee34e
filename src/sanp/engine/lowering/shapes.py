"""The shapes (C, H, W) of a program's values: what each operator takes, and what it makes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from sanp.engine.lowering.unsupported import Unsupported

Floats = NDArray[np.float32]
Pair = tuple[int, int]
Shape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Window:
    """The window of a convolution or a pooling; every pair is (height, width)."""

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    """above and on the left; below and on the right too, unless ``padding_after`` says otherwise"""
    dilation: Pair = (1, 1)
    padding_after: Pair | None = None
    """below and on the right"""

    @property
    def after(self) -> Pair:
        """The padding below and on the right."""
        return self.padding if self.padding_after is None else self.padding_after

    def reaching(self, before: Pair, after: Pair) -> "Window":
        """The window over a map that has so many rows and columns more around it."""
        sums = [(a[0] + b[0], a[1] + b[1]) for a, b in ((self.padding, before), (self.after, after))]
        return replace(self, padding=sums[0], padding_after=sums[1])

    def numbers(self) -> list[int]:
        """What the library reads, in its order; how far the padding reaches follows from the size of the result."""
        return [*self.kernel, *self.stride, *self.padding, *self.dilation]

    def out(self, size: Pair) -> Pair:
        """The size of the map that comes of a map of this size."""
        extent = zip(size, self.kernel, self.stride, self.padding, self.after, self.dilation, strict=True)
        height, width = ((n + p + q - d * (k - 1) - 1) // s + 1 for n, k, s, p, q, d in extent)
        return height, width


@dataclass(frozen=True, kw_only=True)
class Between:
    """Rows or columns that lie between two others each."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    weight: Floats
    """of the second; that of the first is one minus it"""


def pair(given: int | Sequence[int]) -> Pair:
    """(height, width) of a setting that torch takes as one number for both, as a list of one, or as a list of two."""
    numbers = [given] if isinstance(given, int) else list(given)
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def sample_shape(shape: torch.Size) -> Shape:
    """(C, H, W) of one sample of a traced value: a sequence is a map of one row, a vector a map of one pixel.

    Of a value of more dimensions the last ones become the columns of a map.
    """
    if len(shape) < 2:
        raise Unsupported(f"a value of {len(shape)} dimensions")
    if len(shape) > 4:
        return shape[1], shape[2], prod(shape[3:])
    channels, height, width = (*shape[1:], 1, 1)[:3] if len(shape) != 3 else (shape[1], 1, shape[2])
    return channels, height, width


def plane_shape(shape: torch.Size) -> Shape:
    """(C, H, W) of one sample of a traced value whose last two dimensions are maps, as many as there are."""
    return sample_shape(shape) if len(shape) < 5 else (prod(shape[1:-2]), shape[-2], shape[-1])


def convolved(x: Shape, weight: Floats, bias: Floats, window: Window, groups: int) -> Shape:
    """The shape of a convolution's result; raises if weight (C_out, C_in / groups, height, width) does not fit."""
    out, each, *kernel = weight.shape
    if each * groups != x[0] or out % groups or len(bias) != out or tuple(kernel) != tuple(window.kernel):
        raise ValueError(f"weights {weight.shape} in {groups} groups do not fit a value {x} and a window {window}")
    height, width = window.out(x[1:])
    if min(height, width) < 1:
        raise ValueError(f"a window {window} is larger than the value {x}")
    return out, height, width


def projected(x: Shape, weight: Floats, bias: Floats) -> Shape:
    """The shape of a fully connected layer's result; raises if weight (C_out, C_in) does not fit."""
    if weight.shape[1] != x[0] or x[1:] != (1, 1) or len(bias) != len(weight):
        raise ValueError(f"a matrix {weight.shape} does not fit a value {x}")
    return len(weight), 1, 1


def joined_shape(parts: Sequence[Shape]) -> Shape:
    """The shape of the channels of several values, one after the other."""
    if len({part[1:] for part in parts}) != 1:
        raise ValueError(f"values {list(parts)} are not maps of one size")
    return sum(part[0] for part in parts), *parts[0][1:]


def chosen(x: Shape, source: Sequence[int]) -> Shape:
    """The shape of some channels of a value, in any order."""
    if not source or not 0 <= min(source) <= max(source) < x[0]:
        raise ValueError(f"channels {list(source)[:8]} are not among those of a value {x}")
    return len(source), *x[1:]


def combined(a: Shape, b: Shape, *, by_channel: bool = False) -> Shape:
    """The shape of a sum or product; with ``by_channel`` the second value may be one number for each channel."""
    if a != b and not (by_channel and b == (a[0], 1, 1)):
        raise ValueError(f"values {a} and {b} are not of one shape")
    return a


def flattened(x: Shape) -> Shape:
    """The shape of a value with every element as a channel of its own."""
    return x[0] * x[1] * x[2], 1, 1
