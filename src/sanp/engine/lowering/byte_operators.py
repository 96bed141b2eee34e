"""The operators of a native program that read or write maps of bytes, as records; native/int8/read.hpp reads them.

A byte is 0 to 255 and stands for (byte - zero) times the scale of its map; zero, the byte that stands for zero, is 0
where nothing of the map is negative. A scale is an array of one number.
"""

from dataclasses import dataclass
from typing import ClassVar

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.shapes import Floats, Window
from sanp.engine.names import OperatorKind


@dataclass(frozen=True, kw_only=True)
class Quantise:
    """The nearest byte to x / scale + zero, ties to the even one."""

    kind: ClassVar = OperatorKind.QUANTISE
    x: int
    out: int
    scale: Floats
    zero: int


@dataclass(frozen=True, kw_only=True)
class Dequantise:
    """What bytes stand for."""

    kind: ClassVar = OperatorKind.DEQUANTISE
    x: int
    out: int
    scale: Floats
    zero: int


@dataclass(frozen=True, kw_only=True)
class ByteConv:
    """act(gate · (weight * (x - zero) · multiplier + bias) + residual) of bytes x, with whole weights from -127 to 127.

    With ``scale_after`` it is gate · act(weight * (x - zero) · multiplier + bias), and with ``follows`` a channel
    without live inputs is zero. ``multiplier`` has for each output channel the scale of x times that of its weights.
    With ``to_bytes`` the result is bytes with this scale and the zero point ``out_zero``; a residual may then be bytes
    too, with ``residual_scale`` and ``residual_zero``.
    """

    kind: ClassVar = OperatorKind.BYTE_CONV
    x: int
    residual: int
    to_bytes: bool
    out: int
    window: Window
    groups: int
    gate: int
    follows: bool
    scale_after: bool
    act: Activation
    zero: int
    scale: Floats
    out_zero: int
    weight: Floats
    multiplier: Floats
    bias: Floats
    residual_scale: Floats
    residual_zero: int


@dataclass(frozen=True, kw_only=True)
class ByteMean:
    """The mean of each channel of bytes, a map of one pixel of floats."""

    kind: ClassVar = OperatorKind.BYTE_MEAN
    x: int
    out: int
    scale: Floats
    zero: int


@dataclass(frozen=True, kw_only=True)
class BytePool:
    """The largest byte under the window."""

    kind: ClassVar = OperatorKind.BYTE_POOL
    x: int
    out: int
    window: Window


@dataclass(frozen=True, kw_only=True)
class ByteAverage:
    """The average under the window: whole sums of (byte - read_zero), times ``inverse`` (pixels,), as bytes."""

    kind: ClassVar = OperatorKind.BYTE_AVERAGE
    x: int
    out: int
    window: Window
    inverse: Floats
    read_scale: Floats
    read_zero: int
    scale: Floats
    zero: int


@dataclass(frozen=True, kw_only=True)
class ByteCombine:
    """Channels of bytes that are sums of one or two channels of other bytes, which may have other scales.

    A channel is the activation of the sum of what its terms stand for. ``terms`` has four numbers for each channel: a
    place in ``values`` and a channel of that value, twice; the place is -1 where there is no such term. Each value has
    its scale and its zero point. Concatenations, additions and choices of channels are such sums.
    """

    kind: ClassVar = OperatorKind.BYTE_COMBINE
    count: int
    values: tuple[int, ...]
    out: int
    scales: Floats
    zeros: tuple[int, ...]
    terms: tuple[int, ...]
    act: Activation
    scale: Floats
    zero: int


ByteOperator = Quantise | Dequantise | ByteConv | ByteMean | BytePool | ByteAverage | ByteCombine
