"""The operators of a native program as records, and the numbers that the library reads for them.

A record's fields stand in the order in which native/read.cpp reads them. Values and gates are numbers; -1 stands for
none. ``x`` is the value that an operator reads, ``out`` the value that it makes.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.byte_operators import ByteOperator
from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.lowering.other_operators import OtherOperator
from sanp.engine.lowering.shapes import Floats, Window
from sanp.engine.names import ACTIVATIONS, OperatorKind


@dataclass(frozen=True, kw_only=True)
class Input:
    """A value that the caller gives."""

    kind: ClassVar = OperatorKind.INPUT
    out: int


@dataclass(frozen=True, kw_only=True)
class Output:
    """A value that the caller gets."""

    kind: ClassVar = OperatorKind.OUTPUT
    x: int


@dataclass(frozen=True, kw_only=True)
class Conv:
    """act(gate · (weight * x + bias) + residual), or with ``scale_after`` gate · act(weight * x + bias).

    With ``follows`` a channel without live inputs is zero.
    """

    kind: ClassVar = OperatorKind.CONV
    x: int
    residual: int
    out: int
    window: Window
    groups: int
    gate: int
    follows: bool
    scale_after: bool
    act: Activation
    weight: Floats
    bias: Floats


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The decision which output channels of a convolution are open."""

    kind: ClassVar = OperatorKind.GATE
    x: int
    weights: GateWeights


@dataclass(frozen=True, kw_only=True)
class Linear:
    """act(weight x + bias) of a vector."""

    kind: ClassVar = OperatorKind.LINEAR
    x: int
    out: int
    act: Activation
    weight: Floats
    bias: Floats


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The largest number under the window, or the sum times ``inverse``, which has a number for each output pixel."""

    kind: ClassVar = OperatorKind.POOL
    x: int
    out: int
    window: Window
    maximum: bool
    inverse: Floats | None


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """The largest number or the mean of each window of an adaptive pooling to the size of ``out``."""

    kind: ClassVar = OperatorKind.ADAPTIVE
    x: int
    out: int
    maximum: bool


@dataclass(frozen=True, kw_only=True)
class Activate:
    """act(x)."""

    kind: ClassVar = OperatorKind.ACTIVATION
    x: int
    out: int
    act: Activation


@dataclass(frozen=True, kw_only=True)
class Add:
    """act(a + b)."""

    kind: ClassVar = OperatorKind.ADD
    a: int
    b: int
    out: int
    act: Activation


@dataclass(frozen=True, kw_only=True)
class Multiply:
    """a · b, where b has the same shape or one number for each channel."""

    kind: ClassVar = OperatorKind.MULTIPLY
    a: int
    b: int
    out: int


@dataclass(frozen=True, kw_only=True)
class Affine:
    """act(scale · x + shift), with one scale and shift for each channel; without ``fills`` a pruned one stays so."""

    kind: ClassVar = OperatorKind.AFFINE
    x: int
    out: int
    scale: Floats
    shift: Floats
    fills: bool
    act: Activation


@dataclass(frozen=True, kw_only=True)
class Concat:
    """The channels of several values, one after the other."""

    kind: ClassVar = OperatorKind.CONCAT
    count: int
    values: tuple[int, ...]
    out: int


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Channel c of the result is channel source[c] of x."""

    kind: ClassVar = OperatorKind.CHANNELS
    x: int
    out: int
    source: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Flatten:
    """Every element as a channel of its own."""

    kind: ClassVar = OperatorKind.FLATTEN
    x: int
    out: int


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """The channels of each pixel with a mean of 0 and a deviation of 1, then scaled and shifted."""

    kind: ClassVar = OperatorKind.LAYER_NORM
    x: int
    out: int
    scale: Floats
    shift: Floats
    eps: Floats


Operator = (
    Input | Output | Conv | Gate | Linear | Pool | Adaptive | Activate | Add | Multiply | Affine | Concat | Channels
    | Flatten | LayerNorm | OtherOperator | ByteOperator
)  # fmt: skip

Place = Callable[[Floats], int]
"""puts an array behind the weights that are there, and gives the number of its first float"""


def encoded(operator: Operator, place: Place) -> list[int]:
    """The numbers of an operator; its arrays are put among the weights in the same order."""
    given = [getattr(operator, field.name) for field in fields(operator)]
    return [operator.kind, *(number for field in given for number in _numbers(field, place))]


def _numbers(field: Any, place: Place) -> list[int]:
    if field is None:
        return []
    if isinstance(field, int):
        return [int(field)]
    if isinstance(field, tuple):
        return list(field)
    if isinstance(field, Window):
        return field.numbers()
    if isinstance(field, Activation):
        bounds = np.array([field.a, field.b], np.float32)
        return [ACTIVATIONS.index(field.kind), place(bounds), *_numbers(field.slope, place)]
    if isinstance(field, GateWeights):
        sizes = [len(field.b2), len(field.b1)]
        settings = [int(field.scales), field.group, field.top, int(field.absolute)]
        most = np.array([field.most], np.float32)
        arrays = (field.w1.T, field.b1, field.w2.T, field.b2, field.threshold, most)
        return [*sizes, *settings, *map(place, arrays)]
    return [place(field)]
