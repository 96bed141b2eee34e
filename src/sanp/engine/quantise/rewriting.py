"""Writes a program again with its convolutions on bytes where that is possible, and in floats elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from sanp.core.int8_calibration import Range
from sanp.engine.lowering.byte_operators import ByteAverage, ByteConv, ByteMean, BytePool, Dequantise, Quantise
from sanp.engine.lowering.operators import Adaptive, Channels, Concat, Conv, Gate, Operator, Pool
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.shapes import Shape
from sanp.engine.quantise.candidates import Candidates, candidates, values_read
from sanp.engine.quantise.combining import Read, combined_bytes
from sanp.engine.quantise.ranges import Steps
from sanp.engine.quantise.weights import whole_weights


@dataclass(frozen=True)
class Rewritten:
    """A program on bytes."""

    writer: ProgramWriter
    origin: tuple[str, ...]
    """for every operator, the unit it came from"""
    reasons: Mapping[int, str]
    """for the convolutions that stay in fp32, why, by number of the operator"""


def rewritten(
    writer: ProgramWriter,
    origin: Sequence[str],
    ranges: Mapping[int, Range],
    refused: Mapping[int, str] | None = None,
) -> Rewritten:
    """The program with its convolutions on bytes.

    ``origin`` says of every operator where it came from, ``ranges`` has the range of every root in :func:`candidates`,
    ``refused`` the convolutions that stay in fp32 though they need not, with the reason.
    """
    rewriting = _Rewriting(writer, candidates(writer, refused), ranges)
    for number, (operator, name) in enumerate(zip(writer.operators, origin, strict=True)):
        rewriting.take(number, operator, name)
    return Rewritten(rewriting.writer, tuple(rewriting.origin), rewriting.reasons)


def byte_conv(conv: Conv, read: Steps, **given: Any) -> ByteConv:
    """A convolution on bytes with these steps; ``given`` are the fields that say what it reads and writes."""
    weight, weight_scale = whole_weights(conv.weight)
    return ByteConv(
        window=conv.window, groups=conv.groups, gate=conv.gate, follows=conv.follows, scale_after=conv.scale_after,
        act=conv.act, zero=read.zero, weight=weight, multiplier=weight_scale * read.scale, bias=conv.bias, **given,
    )  # fmt: skip


_PLAIN = Steps(np.ones(1, np.float32), 0)
"""of what is not bytes"""


class _Rewriting:
    """Takes the operators of a program one by one; a value becomes bytes or floats when something asks for it so."""

    def __init__(self, old: ProgramWriter, found: Candidates, ranges: Mapping[int, Range]) -> None:
        self.old, self.found = old, found
        self.writer = ProgramWriter()
        self.origin: list[str] = []
        self.reasons: dict[int, str] = {}
        self._steps = {root: Steps.of(ends) for root, ends in ranges.items()}
        self._floats: dict[int, int] = {}
        """values of the old program that were made as floats, by their number in the new one"""
        self._bytes: dict[int, int] = {}
        """the same for bytes, made so or from floats"""
        self._back: dict[int, int] = {}
        """the same for floats that were made from bytes"""
        self._means: dict[int, int] = {}
        """the same for means of bytes"""

    def take(self, number: int, operator: Operator, name: str) -> None:
        """Writes one operator, and before it what turns its inputs into what it reads."""
        if number in self.found.convolutions:
            assert isinstance(operator, Conv)
            self._convolve(operator)
        elif number in self.found.others:
            self._combine(operator)
        elif isinstance(operator, Channels) and self._only_bytes(operator.x):
            self._bytes[operator.out] = self._combined(operator, (operator.x,))
        elif isinstance(operator, Gate) and self._only_bytes(operator.x) and self._means_suffice(operator):
            self._append(replace(operator, x=self._mean(operator.x)))
        elif isinstance(operator, Pool) and operator.maximum and self._only_bytes(operator.x):
            x = self._bytes[operator.x]
            made = self._made(operator.out, lambda out: BytePool(x=x, out=out, window=operator.window))
            self._bytes[operator.out] = made
        elif isinstance(operator, Adaptive) and self._is_mean(operator) and self._only_bytes(operator.x):
            self._floats[operator.out] = self._mean(operator.x)
        else:
            self._copy(operator)
            if number in self.found.reasons:
                self.reasons[len(self.writer.operators) - 1] = self.found.reasons[number]
        self.origin += [name] * (len(self.writer.operators) - len(self.origin))

    def _is_mean(self, operator: Adaptive) -> bool:
        return not operator.maximum and self.old.shapes[operator.out][1:] == (1, 1)

    def _only_bytes(self, value: int) -> bool:
        return value in self._bytes and value not in self._floats

    def _means_suffice(self, gate: Gate) -> bool:
        """A mean of absolute values is that of the values where none is negative."""
        return not gate.weights.absolute or self._steps_of(gate.x).zero == 0

    def _steps_of(self, value: int) -> Steps:
        return self._steps[self.found.roots[value]]

    def _convolve(self, conv: Conv) -> None:
        x = self.as_bytes(conv.x)
        to_bytes = self.found.roots[conv.out] in self.found.ranged
        residual, added = conv.residual, _PLAIN
        if residual >= 0:
            in_bytes = to_bytes and self._only_bytes(residual)
            added = self._steps_of(residual) if in_bytes else added
            residual = self._bytes[residual] if in_bytes else self.as_floats(residual)
        written = self._steps_of(conv.out) if to_bytes else _PLAIN
        made = self._made(
            conv.out,
            lambda out: byte_conv(
                conv, self._steps_of(conv.x), x=x, residual=residual, to_bytes=to_bytes, out=out, scale=written.scale,
                out_zero=written.zero, residual_scale=added.scale, residual_zero=added.zero,
            ),
        )  # fmt: skip
        (self._bytes if to_bytes else self._floats)[conv.out] = made

    def _combine(self, operator: Any) -> None:
        """A concatenation, an addition or an average, from bytes to bytes."""
        if isinstance(operator, Pool):
            x, read, written = self._bytes[operator.x], self._steps_of(operator.x), self._steps_of(operator.out)
            inverse = operator.inverse
            assert inverse is not None
            made = self._made(
                operator.out,
                lambda out: ByteAverage(
                    x=x, out=out, window=operator.window, inverse=inverse, read_scale=read.scale, read_zero=read.zero,
                    scale=written.scale, zero=written.zero,
                ),
            )  # fmt: skip
        else:
            made = self._combined(operator, values_read(operator))
        self._bytes[operator.out] = made

    def _combined(self, operator: Any, values: Sequence[int]) -> int:
        """What is not bytes yet becomes so with the steps of the result."""
        written, read = self._steps_of(operator.out), []
        for value in values:
            if value in self._bytes:
                read.append(Read(self._bytes[value], self.old.shapes[value][0], self._steps_of(value)))
            else:
                read.append(Read(self._quantised(value, written), self.old.shapes[value][0], written))
        return self._made(operator.out, lambda out: combined_bytes(operator, read, written, out))

    def _quantised(self, value: int, steps: Steps) -> int:
        x = self._floats[value]
        return self._made(value, lambda out: Quantise(x=x, out=out, scale=steps.scale, zero=steps.zero))

    def as_bytes(self, value: int) -> int:
        """The value's number as bytes in the new program."""
        if value not in self._bytes:
            self._bytes[value] = self._quantised(value, self._steps_of(value))
        return self._bytes[value]

    def as_floats(self, value: int) -> int:
        """The value's number as floats in the new program."""
        if value in self._floats:
            return self._floats[value]
        if value not in self._back:
            x, steps = self._bytes[value], self._steps_of(value)
            made = self._made(value, lambda out: Dequantise(x=x, out=out, scale=steps.scale, zero=steps.zero))
            self._back[value] = made
        return self._back[value]

    def _mean(self, value: int) -> int:
        """The mean of each channel; several gates may ask for the same one."""
        if value not in self._means:
            x, steps, shape = self._bytes[value], self._steps_of(value), (self.old.shapes[value][0], 1, 1)
            mean = self._made(value, lambda out: ByteMean(x=x, out=out, scale=steps.scale, zero=steps.zero), shape)
            self._means[value] = mean
        return self._means[value]

    def _copy(self, operator: Operator) -> None:
        """The operator as it was, on floats."""
        names = {field.name for field in fields(operator)}
        read = [name for name in ("x", "a", "b", "residual") if name in names]
        given: dict[str, Any] = {name: self._number(getattr(operator, name)) for name in read}
        if isinstance(operator, Concat):
            given["values"] = tuple(map(self.as_floats, operator.values))
        copied: Any = operator
        out = getattr(operator, "out", None)
        if out is None:
            self._append(replace(copied, **given))
        else:
            self._floats[out] = self._made(out, lambda made: replace(copied, out=made, **given))

    def _number(self, value: int) -> int:
        return value if value < 0 else self.as_floats(value)

    def _made(self, value: int, operator: Callable[[int], Operator], shape: Shape | None = None) -> int:
        """Writes an operator whose result has the shape of the old program's value, unless another is given."""
        self.writer.shapes.append(self.old.shapes[value] if shape is None else shape)
        self._append(operator(len(self.writer.shapes) - 1))
        return len(self.writer.shapes) - 1

    def _append(self, operator: Operator) -> None:
        self.writer.operators.append(operator)
