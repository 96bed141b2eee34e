"""Operators that add, join or choose channels, written as sums of channels of bytes with scales of their own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sanp.engine.lowering.activation import IDENTITY
from sanp.engine.lowering.byte_operators import ByteCombine
from sanp.engine.lowering.operators import Add, Channels, Concat
from sanp.engine.quantise.ranges import Steps

_NONE = (-1, 0)


@dataclass(frozen=True)
class Read:
    """A value of bytes: its number, its channels and what its bytes stand for."""

    number: int
    channels: int
    steps: Steps


def combined_bytes(operator: Concat | Add | Channels, read: Sequence[Read], written: Steps, out: int) -> ByteCombine:
    """The operator on bytes ``read``, which may be of several scales; its result ``out`` has the steps ``written``."""
    return ByteCombine(
        count=len(read), values=tuple(value.number for value in read), out=out,
        scales=np.concatenate([value.steps.scale for value in read]), zeros=tuple(value.steps.zero for value in read),
        terms=tuple(number for pair in _terms(operator, read) for term in pair for number in term),
        act=operator.act if isinstance(operator, Add) else IDENTITY, scale=written.scale, zero=written.zero,
    )  # fmt: skip


def _terms(operator: Concat | Add | Channels, read: Sequence[Read]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """For each channel of the result the channels that it is the sum of: a place among the values, a channel of it."""
    every = [(place, channel) for place, value in enumerate(read) for channel in range(value.channels)]
    match operator:
        case Concat():
            return [(one, _NONE) for one in every]
        case Add():
            half = len(every) // 2
            return list(zip(every[:half], every[half:], strict=True))
        case Channels(source=source):
            return [((0, channel), _NONE) for channel in source]
