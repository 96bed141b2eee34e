"""Records of operators that few networks have; operators.py has the usual ones and says what a record is."""

from dataclasses import dataclass
from typing import ClassVar

from sanp.engine.lowering.shapes import Floats, Window
from sanp.engine.names import OperatorKind


@dataclass(frozen=True, kw_only=True)
class Gather:
    """Element p of channel c is element row[c] + column[p] of x, or 0 where column[p] is -1.

    Elements are counted as if every channel of x were there. With as many rows as elements and one column, 0, each row
    is the place of one element, or -1.
    """

    kind: ClassVar = OperatorKind.GATHER
    x: int
    out: int
    count: int
    """of the rows"""
    row: tuple[int, ...]
    column: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class InstanceNorm:
    """gate · (scale · (x - mean) / sqrt(var + eps) + shift), with mean and variance over the pixels of each channel."""

    kind: ClassVar = OperatorKind.INSTANCE_NORM
    x: int
    out: int
    gate: int
    scale: Floats
    shift: Floats
    eps: Floats


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """Over the rows of each channel, column by column; or the logarithm of that."""

    kind: ClassVar = OperatorKind.SOFTMAX
    x: int
    out: int
    logarithm: bool


@dataclass(frozen=True, kw_only=True)
class Interpolate:
    """Rows and columns between two of x: weight of the second, and one minus that of the first."""

    kind: ClassVar = OperatorKind.RESIZE
    x: int
    out: int
    y0: tuple[int, ...]
    y1: tuple[int, ...]
    x0: tuple[int, ...]
    x1: tuple[int, ...]
    weight_y: Floats
    weight_x: Floats


@dataclass(frozen=True, kw_only=True)
class Unpool:
    """Each number of ``a`` at the place of the largest of ``b`` under its window; of several at one place, the last."""

    kind: ClassVar = OperatorKind.UNPOOL
    a: int
    b: int
    out: int
    window: Window


@dataclass(frozen=True, kw_only=True)
class Power:
    """Every element to a power."""

    kind: ClassVar = OperatorKind.POWER
    x: int
    out: int
    exponent: Floats


OtherOperator = Gather | InstanceNorm | Softmax | Interpolate | Unpool | Power
