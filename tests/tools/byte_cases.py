"""Random programs on bytes, each operator against whole numbers: convolutions, pooling, means, and the way in and out.

Every value of a program is given out, so that each operator is computed again from what it read. Sums are those of
double precision, which holds them all; what is rounded to a byte may differ by one step where it lies at a tie.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from sanp.engine.library import NativeProgram
from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.byte_operators import ByteConv, ByteMean, BytePool, Dequantise, Quantise
from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.lowering.operators import Operator
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.shapes import Floats, Shape, Window

Doubles = NDArray[np.float64]
TIE = 1e-3
"""how far from a tie, in steps, rounding must be that of whole numbers"""


@dataclass
class Made:
    """A value of bytes and how it is seen."""

    number: int
    scale: float
    seen: int
    """the output that shows it, in steps"""


class ByteCase:
    """One random program, its input and its decisions."""

    def __init__(self, seed: int) -> None:
        self.dice = np.random.default_rng(seed)
        self.writer = ProgramWriter()
        self.outputs = 0
        self.decisions: list[NDArray[np.uint8]] = []
        self.samples = int(self.dice.integers(1, 4))
        self.threads = int(self.dice.choice([1, 1, 1, 1, 1, 1, 1, 2]))
        self.checks: list[tuple[int, Operator, tuple[int, ...], int]] = []
        """output, operator, outputs that it read, decisions or -1"""
        size = self.dice.integers(1, [20, 14, 14])
        shape: Shape = (int(size[0]), int(size[1]), int(size[2]))
        self.input = self.dice.uniform(-1, 6, (self.samples, *shape)).astype(np.float32)
        if self.dice.random() < 0.2:
            self.input[:] = 6.0
        x = self.writer.input(*shape)
        scale = self._scale()
        made = self._made(shape, lambda out: Quantise(x=x, out=out, scale=_one(scale)))
        self.bytes = [Made(made, scale, self._show(made, shape))]
        self.checks.append((self.bytes[0].seen, self.writer.operators[1], (), -1))
        for _ in range(int(self.dice.integers(1, 5))):
            self.dice.choice([self._convolve, self._convolve, self._pool, self._mean])()  # type: ignore[operator]

    def _scale(self) -> float:
        return float(np.float32(self.dice.uniform(0.005, 0.05)))

    def _made(self, shape: Shape, operator: object) -> int:
        self.writer.shapes.append(shape)
        self.writer.operators.append(operator(len(self.writer.shapes) - 1))  # type: ignore[operator]
        return len(self.writer.shapes) - 1

    def _show(self, value: int, shape: Shape) -> int:
        floats = self._made(shape, lambda out: Dequantise(x=value, out=out, scale=_one(1)))
        return self._give(floats)

    def _give(self, value: int) -> int:
        self.writer.output(value)
        self.outputs += 1
        return self.outputs - 1

    def _window(self, shape: Shape) -> tuple[Window, tuple[int, int]] | None:
        pairs = [tuple(int(n) for n in self.dice.integers(low, high, 2)) for low, high in ((1, 4), (1, 3), (0, 3))]
        kernel, stride, padding = pairs
        dilation = tuple(int(n) for n in self.dice.choice([1, 1, 1, 2], 2))
        if self.dice.random() < 0.4:
            kernel, stride, padding, dilation = (3, 3), (1, 1), (1, 1), (1, 1)
        window = Window(kernel=kernel, stride=stride, padding=padding, dilation=dilation)  # type: ignore[arg-type]
        size = window.out(shape[1:])
        return (window, size) if min(size) > 0 else None

    def _convolve(self) -> None:
        x = self.bytes[int(self.dice.integers(len(self.bytes)))]
        shape = self.writer.shapes[x.number]
        found = self._window(shape)
        if found is None:
            return
        window, size = found
        channels = int(self.dice.integers(1, 30))
        out_shape: Shape = (channels, *size)
        exact = bool(self.dice.random() < 0.3)
        to_bytes = bool(self.dice.random() < 0.7) and not exact
        acts = [Activation("relu"), Activation("clip", 0.0, float(self.dice.uniform(0.5, 6)))]
        act = acts[int(self.dice.integers(2))] if to_bytes else IDENTITY
        gate, drawn = self._gate(x.number, shape[0], channels)
        same = [other for other in self.bytes if self.writer.shapes[other.number] == out_shape]
        added = same[int(self.dice.integers(len(same)))] if same and to_bytes and self.dice.random() < 0.7 else None
        weight = self.dice.integers(-127, 128, (channels, shape[0], *window.kernel)).astype(np.float32)
        if self.dice.random() < 0.2:
            weight[:] = 127 * np.sign(weight + 0.5)
        multiplier = self.dice.uniform(1e-5, 1e-3, channels).astype(np.float32)
        bias = self.dice.normal(0, 1, channels).astype(np.float32)
        if exact:
            multiplier[:], bias[:] = 1, 0
        scale = self._scale()

        def conv(out: int) -> Operator:
            return ByteConv(
                x=x.number, residual=-1 if added is None else added.number, to_bytes=to_bytes, out=out, window=window,
                gate=gate, act=act, scale=_one(scale), weight=weight, multiplier=multiplier, bias=bias,
                residual_scale=_one(1 if added is None else added.scale),
            )  # fmt: skip

        made = self._made(out_shape, conv)
        operator = self.writer.operators[-1]
        seen = self._show(made, out_shape) if to_bytes else self._give(made)
        if to_bytes:
            self.bytes.append(Made(made, scale, seen))
        self.checks.append((seen, operator, (x.seen,) if added is None else (x.seen, added.seen), drawn))

    def _gate(self, x: int, in_channels: int, channels: int) -> tuple[int, int]:
        if self.dice.random() < 0.3:
            return -1, -1
        mean = self._made((in_channels, 1, 1), lambda out: ByteMean(x=x, out=out, scale=_one(1)))
        saliency = self.dice.uniform(0.2, 2, channels).astype(np.float32)
        zeros = np.zeros((0, in_channels), np.float32)
        weights = GateWeights(
            w1=zeros, b1=zeros[:, 0], w2=np.zeros((channels, 0), np.float32), b2=saliency,
            threshold=np.zeros(channels, np.float32), scales=True, group=1, top=0, absolute=False, most=np.inf,
        )  # fmt: skip
        share = self.dice.choice([0.0, 0.3, 0.6, 1.0])
        self.decisions.append((self.dice.random((self.samples, channels)) < share).astype(np.uint8))
        return self.writer.gate(mean, weights), len(self.decisions) - 1

    def _pool(self) -> None:
        x = self.bytes[int(self.dice.integers(len(self.bytes)))]
        found = self._window(self.writer.shapes[x.number])
        if found is None:
            return
        window, size = found
        shape: Shape = (self.writer.shapes[x.number][0], *size)
        made = self._made(shape, lambda out: BytePool(x=x.number, out=out, window=window))
        operator = self.writer.operators[-1]
        self.bytes.append(Made(made, x.scale, self._show(made, shape)))
        self.checks.append((self.bytes[-1].seen, operator, (x.seen,), -1))

    def _mean(self) -> None:
        x = self.bytes[int(self.dice.integers(len(self.bytes)))]
        shape: Shape = (self.writer.shapes[x.number][0], 1, 1)
        made = self._made(shape, lambda out: ByteMean(x=x.number, out=out, scale=_one(x.scale)))
        operator = self.writer.operators[-1]
        self.checks.append((self._give(made), operator, (x.seen,), -1))

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

    def saliency(self, drawn: int) -> Floats:
        """The saliencies of the gate with these decisions."""
        gates = [operator.weights.b2 for operator in self.writer.operators if operator.kind.name == "GATE"]  # type: ignore[union-attr]
        return np.asarray(gates[drawn])


def wrong(case: ByteCase) -> list[str]:
    """Which operators of a case are not as whole numbers have them."""
    outputs = case.run()
    found = []
    for output, operator, read, drawn in case.checks:
        given = outputs[output].astype(np.float64)
        values = [outputs[number].astype(np.float64) for number in read]
        if isinstance(operator, ByteConv):
            good = _conv_is_right(case, operator, values, drawn, given)
        elif isinstance(operator, BytePool):
            good = np.array_equal(given, _pooled(operator, values[0]))
        elif isinstance(operator, ByteMean):
            good = np.array_equal(given[..., 0, 0], _mean(values[0], operator.scale))
        else:
            per_scale = np.float32(1) / operator.scale[0]  # type: ignore[union-attr]
            good = _rounded_right(given, (case.input * per_scale).astype(np.float64), 255.0)
        if not good:
            found.append(f"{type(operator).__name__} {operator}")
    return found


def _conv_is_right(case: ByteCase, conv: ByteConv, values: list[Doubles], drawn: int, given: Doubles) -> bool:
    window = conv.window
    sums = F.conv2d(
        torch.from_numpy(values[0]), torch.from_numpy(conv.weight.astype(np.float64)), stride=window.stride,
        padding=window.padding, dilation=window.dilation,
    ).numpy()  # fmt: skip
    assert np.abs(sums).max(initial=0) < 2**31
    unit = np.ones((len(sums), sums.shape[1]), np.float32)
    opened = np.ones_like(unit, dtype=bool)
    if drawn >= 0:
        unit, opened = unit * case.saliency(drawn), case.decisions[drawn].astype(bool)
    if conv.to_bytes:
        unit = unit * (np.float32(1) / conv.scale[0])
    factor, shift = (conv.multiplier * unit)[..., None, None], (conv.bias * unit)[..., None, None]
    computed = sums.astype(np.float32).astype(np.float64) * factor + shift
    computed = np.where(opened[..., None, None], computed, 0)
    if not conv.to_bytes:
        return bool(np.allclose(given, computed, rtol=3e-7, atol=1e-30 if float(conv.bias.any()) == 0 else 1e-6))
    per_scale = np.float32(1) / conv.scale[0]
    if len(values) > 1:
        computed = computed + values[1] * float(conv.residual_scale[0] * per_scale)
    highest = 255.0
    if conv.act.kind == "clip":
        highest = min(255.0, float(np.rint(np.float32(conv.act.b) * per_scale)))
    return _rounded_right(given, computed, highest)


def _rounded_right(given: Doubles, wanted: Doubles, highest: float) -> bool:
    """Whether bytes are the nearest to these numbers; at a tie either neighbour will do."""
    cut = np.clip(wanted, 0, highest)
    tie = np.abs(cut - np.floor(cut) - 0.5) < TIE
    near = np.abs(given - cut) <= 0.5 + TIE
    return bool(np.all(np.where(tie, near, given == np.rint(cut))))


def _pooled(operator: BytePool, x: Doubles) -> Doubles:
    w = operator.window
    padded = np.pad(x, ((0, 0), (0, 0), (w.padding[0],) * 2, (w.padding[1],) * 2))
    height, width = w.out(x.shape[2:])  # type: ignore[arg-type]
    best = np.zeros((*x.shape[:2], height, width))
    for y in range(w.kernel[0]):
        for z in range(w.kernel[1]):
            top, left = y * w.dilation[0], z * w.dilation[1]
            part = padded[:, :, top :: w.stride[0], left :: w.stride[1]][:, :, :height, :width]
            best = np.maximum(best, part)
    return best


def _mean(x: Doubles, scale: Floats) -> Doubles:
    sums = x.sum((2, 3))
    return (sums / (x.shape[2] * x.shape[3]) * float(scale[0])).astype(np.float32).astype(np.float64)


def _one(number: float) -> Floats:
    return np.array([number], np.float32)


def wrong_byte_cases(seeds: range) -> list[str]:
    """The cases that differ, by seed."""
    return [f"seed {seed}: {story}" for seed in seeds for story in wrong(ByteCase(seed))]
