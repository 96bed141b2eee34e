"""What a traced value is in a program: one of its values, or something that is written only when it is read."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.shapes import Floats, Pair, Shape, Window

NOT_KNOWN = -2
"""the number of an element that a program cannot have from anywhere"""


@dataclass(frozen=True)
class Moved:
    """A traced value whose elements are those of a program's value in another order."""

    base: int
    """the program's value"""
    index: Tensor
    """numbers of elements of one sample of the base, in the traced value's shape without the batch; -1 stands for 0,
    NOT_KNOWN for another constant or for memory that nothing was written to yet"""


@dataclass(frozen=True)
class Padded:
    """A program's value with zeros around its maps, which the convolution that reads it adds by itself."""

    base: int
    before: Pair
    """rows above and columns on the left"""
    after: Pair
    """rows below and columns on the right"""
    lowest: bool = False
    """-inf in the place of the zeros, which only a maximum can read"""


@dataclass(frozen=True)
class Spread:
    """How a transposed convolution spreads its input over a larger map."""

    stride: Pair
    padding: Pair
    size: Pair
    """of the result"""


@dataclass(frozen=True)
class Pending:
    """A convolution that is not written yet: what follows it may still become part of it.

    ``gate`` and ``residual`` are numbers in the program, -1 for none; the fields are the arguments of
    :meth:`Writer.conv`.
    """

    name: str
    """path of the module"""
    x: int
    weight: Floats
    bias: Floats
    window: Window
    groups: int
    gate: int = -1
    follows: bool = False
    residual: int = -1
    act: Activation | None = None
    """an activation that comes before the gate's product; then nothing else can be taken in"""
    spread: Spread | None = None
    """of a transposed convolution; its weight is (C_out, C_in / groups, height, width) all the same"""


@dataclass(frozen=True)
class ChannelsLast:
    """A map whose traced form has its channels last: (N, H, W, C), or (N · H · W, C) with a row for each pixel."""

    inner: int | Pending
    """the same map with its channels first"""


@dataclass(frozen=True)
class Places:
    """Where the maxima of a pooling were found: numbers that a program does not make."""

    x: int = -1
    """the map that was pooled, -1 where it is of no use"""
    window: Window | None = None


Known = int | Moved | Padded | Pending | ChannelsLast | Places
"""what a traced value is in the program"""


def last_index(shape: Shape) -> Tensor:
    """(H, W, C): the numbers of the elements of a map (C, H, W), its channels last."""
    return torch.arange(int(np.prod(shape))).reshape(shape).permute(1, 2, 0)


def takes_affine(conv: Pending, scale: Floats, shift: Floats) -> bool:
    """Whether a scale and this shift by channel can become part of a convolution.

    A pruned channel stays zero only without a shift; and weights that would overflow stay as they are.
    """
    if conv.residual >= 0 or conv.act is not None or ((conv.gate >= 0 or conv.follows) and shift.any()):
        return False
    largest = float(np.abs(conv.weight).max(initial=0.0)) * float(np.abs(scale).max(initial=0.0))
    return largest < float(np.finfo(np.float32).max)


def affine(conv: Pending, scale: Floats, shift: Floats) -> Pending:
    """scale · conv + shift by channel."""
    rows = scale.reshape(-1, *(1,) * (conv.weight.ndim - 1))
    return replace(conv, weight=conv.weight * rows, bias=conv.bias * scale + shift)
