"""Random programs on bytes, each operator against whole numbers: convolutions, pooling, sums of channels, in and out.

Every value of a program is given out, so that each operator is computed again from what it read. Sums are those of
double precision, which holds them all; what is rounded to a byte may differ by one step where it lies at a tie.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.byte_operators import (
    ByteAverage,
    ByteCombine,
    ByteConv,
    ByteMean,
    BytePool,
    Dequantise,
    Quantise,
)
from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.lowering.operators import Operator
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.shapes import Floats, Shape, Window
from sanp.engine.native_program import NativeProgram
from sanp.engine.quantise.candidates import MOST_WEIGHT_BYTES
from tests.tools.byte_reference import (
    averaged,
    bounds_of,
    combined,
    convolved,
    fills,
    mean,
    pooled,
    rounded_right,
    sums_of,
)

Bools = NDArray[np.bool_]


@dataclass
class Made:
    """A value of bytes and how it is seen."""

    number: int
    scale: float
    zero: int
    seen: int
    """the output that shows it, in steps less the zero point"""
    live: Bools
    """(samples, channels): which channels the program lists"""
    floats: int
    """the same as a value of floats, in steps"""


@dataclass(frozen=True)
class Check:
    """An operator, the output that shows its result, and what it read."""

    output: int
    operator: Operator
    read: tuple[int, ...] = ()
    opened: Bools | None = None
    """of a convolution: the channels that it computes"""
    saliency: Floats | None = None
    live: tuple[Bools, ...] = ()
    """of a combination: which channels of what it read are not pruned"""


class ByteCase:
    """One random program, its input and its decisions."""

    def __init__(self, seed: int) -> None:
        self.dice = np.random.default_rng(seed)
        self.writer = ProgramWriter()
        self.outputs = 0
        self.decisions: list[NDArray[np.uint8]] = []
        self.samples = int(self.dice.integers(1, 4))
        self.threads = int(self.dice.choice([1, 1, 1, 1, 1, 1, 1, 2]))
        self.checks: list[Check] = []
        size = self.dice.integers(1, [20, 14, 14])
        kind = self.dice.random()
        if kind < 0.1:
            size[1:] += 20
        elif kind < 0.2:  # more channels than a line of weights holds, on small maps
            size = self.dice.integers(1, [200, 10, 10])
        shape: Shape = (int(size[0]), int(size[1]), int(size[2]))
        scale, zero = self._scale(), self._zero()
        self.input = self.dice.uniform(-6 if zero else -1, 6, (self.samples, *shape)).astype(np.float32)
        if self.dice.random() < 0.2:
            self.input[:] = 6.0
        x = self.writer.input(*shape)
        made = self._made(shape, lambda out: Quantise(x=x, out=out, scale=_one(scale), zero=zero))
        everything = np.ones((self.samples, shape[0]), bool)
        self.bytes = [self._shown(made, scale, zero, everything)]
        self.checks.append(Check(self.bytes[0].seen, self.writer.operators[1]))
        for _ in range(int(self.dice.integers(1, 5))):
            steps = [self._convolve] * 3 + [self._pool, self._mean, self._average, self._combine, self._join]
            self.dice.choice(steps)()  # type: ignore[arg-type, operator]

    def _scale(self) -> float:
        return float(np.float32(self.dice.uniform(0.005, 0.05)))

    def _zero(self) -> int:
        return int(self.dice.choice([0, 0, 0, 1, 128, 255, self.dice.integers(256), self.dice.integers(256)]))

    def _any(self) -> Made:
        return self.bytes[int(self.dice.integers(len(self.bytes)))]

    def _made(self, shape: Shape, operator: Callable[[int], Operator]) -> int:
        self.writer.shapes.append(shape)
        self.writer.operators.append(operator(len(self.writer.shapes) - 1))
        return len(self.writer.shapes) - 1

    def _shown(self, value: int, scale: float, zero: int, live: Bools) -> Made:
        shape = self.writer.shapes[value]
        floats = self._made(shape, lambda out: Dequantise(x=value, out=out, scale=_one(1), zero=zero))
        return Made(value, scale, zero, self._give(floats), live, floats)

    def _give(self, value: int) -> int:
        self.writer.output(value)
        self.outputs += 1
        return self.outputs - 1

    def _window(self, shape: Shape) -> tuple[Window, tuple[int, int]] | None:
        pairs = [tuple(int(n) for n in self.dice.integers(low, high, 2)) for low, high in ((1, 4), (1, 3), (0, 3))]
        kernel, stride, padding = pairs
        dilation = tuple(int(n) for n in self.dice.choice([1, 1, 1, 2], 2))
        if self.dice.random() < 0.6:
            one = int(self.dice.choice([3, 3, 5, 7]))
            kernel, dilation, stride = (one, one), (1, 1), (int(self.dice.choice([1, 2])),) * 2
            padding = (one // 2,) * 2 if self.dice.random() < 0.7 else (int(self.dice.integers(one)),) * 2
        after = tuple(int(n) for n in self.dice.integers(0, 3, 2)) if self.dice.random() < 0.3 else padding
        window = Window(kernel=kernel, stride=stride, padding=padding, padding_after=after, dilation=dilation)  # type: ignore[arg-type]
        size = window.out(shape[1:])
        return (window, size) if min(size) > 0 else None

    def _groups(self, channels: int) -> tuple[int, int]:
        """Groups, and output channels."""
        kind = self.dice.random()
        if kind < 0.5:
            return 1, int(self.dice.integers(1, 30))
        if kind < 0.8:
            return channels, channels * int(self.dice.choice([1, 1, 1, 1, 2]))
        divisors = [n for n in range(1, channels + 1) if channels % n == 0]
        groups = int(self.dice.choice(divisors))
        return groups, groups * int(self.dice.integers(1, 6))

    def _activation(self, channels: int) -> Activation:
        slopes = self.dice.uniform(-0.5, 0.5, channels).astype(np.float32)
        low, high = sorted(self.dice.uniform(-2, 6, 2).tolist())
        kinds = [
            IDENTITY, IDENTITY, Activation("relu"), Activation("relu"), Activation("clip", 0.0, high + 3),
            Activation("clip", low, high), Activation("leaky", 0.1), Activation("prelu", slope=slopes),
            Activation("silu"), Activation("hardswish"), Activation("sigmoid"),
        ]  # fmt: skip
        return kinds[int(self.dice.integers(len(kinds)))]

    def _convolve(self) -> None:
        x = self._any()
        shape = self.writer.shapes[x.number]
        found = self._window(shape)
        if found is None:
            return
        window, size = found
        groups, channels = self._groups(shape[0])
        if -(-shape[0] // groups // 64) * 64 * window.kernel[0] * window.kernel[1] > MOST_WEIGHT_BYTES:
            return
        out_shape: Shape = (channels, *size)
        exact = bool(self.dice.random() < 0.2)
        to_bytes = bool(self.dice.random() < 0.7) and not exact
        act = IDENTITY if exact else self._activation(channels)
        gate, opened, saliency = self._gate(x, shape[0], channels)
        follows = groups > 1 and bool(self.dice.random() < 0.5)
        if follows:
            opened = opened & np.repeat(x.live.reshape(self.samples, groups, -1).any(2), channels // groups, 1)
        same = [other for other in self.bytes if self.writer.shapes[other.number] == out_shape]
        added = same[int(self.dice.integers(len(same)))] if same and self.dice.random() < 0.7 else None
        scale_after = gate >= 0 and added is None and bool(self.dice.random() < 0.3)
        added_bytes = added is not None and to_bytes and bool(self.dice.random() < 0.7)
        weight = self.dice.integers(-127, 128, (channels, shape[0] // groups, *window.kernel)).astype(np.float32)
        if self.dice.random() < 0.2:
            weight[:] = 127 * np.sign(weight + 0.5)
        multiplier = self.dice.uniform(1e-5, 1e-3, channels).astype(np.float32)
        bias = self.dice.normal(0, 1, channels).astype(np.float32)
        if exact:
            multiplier[:], bias[:] = 1, 0
        scale, zero = self._scale(), self._zero()

        def conv(out: int) -> Operator:
            residual = -1 if added is None else added.number if added_bytes else added.floats
            return ByteConv(
                x=x.number, residual=residual, to_bytes=to_bytes, out=out, window=window, groups=groups, gate=gate,
                follows=follows, scale_after=scale_after, act=act, zero=x.zero, scale=_one(scale),
                out_zero=zero if to_bytes else 0, weight=weight, multiplier=multiplier, bias=bias,
                residual_scale=_one(added.scale if added and added_bytes else 1),
                residual_zero=added.zero if added and added_bytes else 0,
            )  # fmt: skip

        made = self._made(out_shape, conv)
        operator = self.writer.operators[-1]
        if to_bytes:
            filled = not scale_after and fills(act)
            live = opened | (np.zeros_like(opened) if added is None else added.live) | filled
            self.bytes.append(self._shown(made, scale, zero, live))
        seen = self.bytes[-1].seen if to_bytes else self._give(made)
        read = (x.seen,) if added is None else (x.seen, added.seen)
        self.checks.append(Check(seen, operator, read, opened, saliency))

    def _gate(self, x: Made, in_channels: int, channels: int) -> tuple[int, Bools, Floats]:
        if self.dice.random() < 0.3:
            return -1, np.ones((self.samples, channels), bool), np.ones(channels, np.float32)
        shape: Shape = (in_channels, 1, 1)
        average = self._made(shape, lambda out: ByteMean(x=x.number, out=out, scale=_one(1), zero=x.zero))
        saliency = self.dice.uniform(0.2, 2, channels).astype(np.float32)
        zeros = np.zeros((0, in_channels), np.float32)
        weights = GateWeights(
            w1=zeros, b1=zeros[:, 0], w2=np.zeros((channels, 0), np.float32), b2=saliency,
            threshold=np.zeros(channels, np.float32), scales=True, group=1, top=0, absolute=False, most=np.inf,
        )  # fmt: skip
        share = self.dice.choice([0.0, 0.3, 0.6, 1.0])
        self.decisions.append((self.dice.random((self.samples, channels)) < share).astype(np.uint8))
        return self.writer.gate(average, weights), self.decisions[-1].astype(bool), saliency

    def _pool(self) -> None:
        x = self._any()
        found = self._window(self.writer.shapes[x.number])
        if found is None:
            return
        window, size = found
        shape: Shape = (self.writer.shapes[x.number][0], *size)
        empty = BytePool(x=0, out=0, window=window)
        if not np.isfinite(pooled(empty, np.zeros((1, *self.writer.shapes[x.number])))).all():
            return  # a window that lies around the map alone has no largest number
        made = self._made(shape, lambda out: BytePool(x=x.number, out=out, window=window))
        operator = self.writer.operators[-1]
        self.bytes.append(self._shown(made, x.scale, x.zero, x.live))
        self.checks.append(Check(self.bytes[-1].seen, operator, (x.seen,)))

    def _average(self) -> None:
        x = self._any()
        found = self._window(self.writer.shapes[x.number])
        if found is None:
            return
        window, size = found
        scale, zero = self._scale(), self._zero()
        inverse = self.dice.uniform(0.05, 0.5, size[0] * size[1]).astype(np.float32)
        made = self._made(
            (self.writer.shapes[x.number][0], *size),
            lambda out: ByteAverage(
                x=x.number, out=out, window=window, inverse=inverse, read_scale=_one(x.scale), read_zero=x.zero,
                scale=_one(scale), zero=zero,
            ),
        )  # fmt: skip
        operator = self.writer.operators[-1]
        self.bytes.append(self._shown(made, scale, zero, x.live))
        self.checks.append(Check(self.bytes[-1].seen, operator, (x.seen,)))

    def _like(self) -> list[Made]:
        """Some values of one size, which may be one value several times."""
        x = self._any()
        size = self.writer.shapes[x.number][1:]
        same = [other for other in self.bytes if self.writer.shapes[other.number][1:] == size]
        return [x, *(same[int(self.dice.integers(len(same)))] for _ in range(int(self.dice.integers(0, 4))))]

    def _combine(self) -> None:
        """Channels that are the sums of any two, of one or of none."""
        read, channels = self._like(), int(self.dice.integers(1, 20))
        terms: list[int] = []
        for _ in range(2 * channels):
            place = int(self.dice.integers(-1, len(read)))
            width = self.writer.shapes[read[place].number][0] if place >= 0 else 1
            terms += [place, int(self.dice.integers(width))]
        self._sum(read, terms, self._activation(channels))

    def _join(self) -> None:
        """A concatenation of values with scales of their own."""
        read, terms = self._like(), list[int]()
        for place, value in enumerate(read):
            for channel in range(self.writer.shapes[value.number][0]):
                terms += [place, channel, -1, 0]
        self._sum(read, terms, IDENTITY)

    def _sum(self, read: list[Made], terms: list[int], act: Activation) -> None:
        scale, zero, channels = self._scale(), self._zero(), len(terms) // 4
        made = self._made(
            (channels, *self.writer.shapes[read[0].number][1:]),
            lambda out: ByteCombine(
                count=len(read), values=tuple(value.number for value in read), out=out,
                scales=np.array([value.scale for value in read], np.float32),
                zeros=tuple(value.zero for value in read), terms=tuple(terms), act=act, scale=_one(scale), zero=zero,
            ),
        )  # fmt: skip
        operator = self.writer.operators[-1]
        live = np.full((self.samples, channels), fills(act))
        for c, pair in enumerate(np.array(terms).reshape(-1, 2, 2)):
            for place, channel in pair:
                if place >= 0:
                    live[:, c] |= read[place].live[:, channel]
        self.bytes.append(self._shown(made, scale, zero, live))
        seen = tuple(value.seen for value in read)
        self.checks.append(Check(self.bytes[-1].seen, operator, seen, live=tuple(value.live for value in read)))

    def _mean(self) -> None:
        x = self._any()
        shape: Shape = (self.writer.shapes[x.number][0], 1, 1)
        made = self._made(shape, lambda out: ByteMean(x=x.number, out=out, scale=_one(x.scale), zero=x.zero))
        operator = self.writer.operators[-1]
        self.checks.append(Check(self._give(made), operator, (x.seen,)))

    def run(self) -> list[Floats]:
        """The outputs of the native program under the case's decisions."""
        program: NativeProgram = self.writer.build()
        made = [np.full((self.samples, *shape), np.nan, np.float32) for shape in program.outputs]
        told = np.concatenate(self.decisions, 1) if self.decisions else np.zeros((self.samples, 1), np.uint8)
        told = np.ascontiguousarray(told)
        program.run_at(
            [self.input.ctypes.data], [y.ctypes.data for y in made], self.samples, self.threads,
            forced=told.ctypes.data,
        )  # fmt: skip
        return made


def wrong(case: ByteCase) -> list[str]:
    """Which operators of a case are not as whole numbers have them."""
    outputs = case.run()
    found = []
    for check in case.checks:
        given = outputs[check.output].astype(np.float64)
        values = [outputs[number].astype(np.float64) for number in check.read]
        operator = check.operator
        match operator:
            case ByteConv():
                good = _conv_is_right(check, operator, values, given)
            case BytePool():
                good = np.array_equal(given, pooled(operator, values[0]))
            case ByteMean(scale=scale):
                good = np.array_equal(given[..., 0, 0], mean(values[0], scale))
            case ByteAverage(zero=zero):
                good = rounded_right(given + zero, averaged(operator, values[0]))
            case ByteCombine(zero=zero):
                good = rounded_right(given + zero, combined(operator, values, check.live))
            case Quantise(scale=scale, zero=zero):
                steps = (case.input * (np.float32(1) / scale[0])).astype(np.float64)
                good = rounded_right(given + zero, steps + zero)
            case _:
                raise AssertionError(operator)
        if not good:
            found.append(f"{type(operator).__name__} {operator}")
    return found


def _conv_is_right(check: Check, conv: ByteConv, values: list[np.ndarray], given: np.ndarray) -> bool:  # type: ignore[type-arg]
    assert check.opened is not None and check.saliency is not None
    residual = values[1] * float(conv.residual_scale[0]) if len(values) > 1 else None
    made = convolved(conv, values[0], check.opened.astype(np.float64), check.saliency, residual)
    if conv.to_bytes:
        return rounded_right(given + conv.out_zero, made, *bounds_of(conv))
    if conv.act.kind == "none" and not conv.bias.any() and residual is None:
        return bool(np.allclose(given, made, rtol=3e-7, atol=1e-30))
    summands = (
        sums_of(conv, values[0]) * conv.multiplier[:, None, None],
        conv.bias,
        0 if residual is None else residual,
    )
    largest = max(float(np.abs(each).max(initial=0)) for each in summands) * float(check.saliency.max())
    return bool(np.allclose(given, made, rtol=1e-5, atol=1e-6 * max(largest, 1.0)))


def _one(number: float) -> Floats:
    return np.array([number], np.float32)


def wrong_byte_cases(seeds: range) -> list[str]:
    """The cases that differ, by seed."""
    return [f"seed {seed}: {story}" for seed in seeds for story in wrong(ByteCase(seed))]
