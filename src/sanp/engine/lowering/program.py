"""Writes a program for the native library: values and operators as numbers, weights as one array of floats."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sanp.engine.library import NativeProgram
from sanp.engine.lowering.shapes import (
    Floats,
    Pair,
    Shape,
    Window,
    chosen,
    combined,
    convolved,
    flattened,
    joined,
    projected,
)

(_INPUT, _OUTPUT, _CONV, _GATE, _LINEAR, _POOL, _ADAPTIVE, _ACTIVATION, _ADD, _MULTIPLY, _AFFINE, _CONCAT, _CHANNELS,
 _FLATTEN) = range(1, 15)  # fmt: skip

ACTIVATIONS = (
    "none", "relu", "clip", "leaky", "silu", "gelu", "gelu_tanh", "hardswish", "hardsigmoid", "sigmoid", "tanh",
    "prelu", "elu",
)  # fmt: skip


@dataclass(frozen=True)
class Activation:
    """A function of every element: its name, up to two numbers, and for ``prelu`` a slope a channel."""

    kind: str = "none"
    a: float = 0.0
    b: float = 0.0
    slope: Floats | None = None


IDENTITY = Activation()


@dataclass(frozen=True, kw_only=True)
class GateWeights:
    """A Saliency-and-Pruning Module as the library wants it: s = W2 relu(W1 d + b1) + b2, open where s > threshold."""

    w1: Floats  # (hidden, C_in); no rows for a constant saliency
    b1: Floats
    w2: Floats  # (C_out, hidden)
    b2: Floats
    threshold: Floats
    group: int = 1
    top: int = 0
    scales: bool = True
    absolute: bool = False
    most: float = math.inf  # features are multiplied by no more than this


class ProgramWriter:
    """Collects operators; each method gives the number of the value that it makes."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self.operators: list[list[int]] = []
        self._data: list[Floats] = []
        self._floats = 0
        self._inputs: list[Shape] = []
        self._outputs: list[Shape] = []

    def build(self) -> NativeProgram:
        """The program, ready to run."""
        code = [len(self.shapes), *(n for shape in self.shapes for n in shape)]
        code += [n for operator in self.operators for n in operator]
        data = np.concatenate(self._data) if self._data else np.zeros(1, np.float32)
        return NativeProgram(code, data, list(self._inputs), list(self._outputs))

    def input(self, channels: int, height: int, width: int) -> int:
        """A value that the caller gives."""
        self._inputs.append((channels, height, width))
        return self._add((channels, height, width), lambda out: [_INPUT, out])

    def output(self, value: int) -> None:
        """Marks a value that the caller gets."""
        self._outputs.append(self.shapes[value])
        self.operators.append([_OUTPUT, value])

    def conv(
        self,
        x: int,
        weight: Floats,
        bias: Floats,
        window: Window,
        *,
        groups: int = 1,
        act: Activation = IDENTITY,
        residual: int = -1,
        gate: int = -1,
        follows: bool = False,
    ) -> int:
        """act(gate · (weight * x + bias) + residual); with ``follows`` a channel without live inputs is zero."""
        return self._add(
            convolved(self.shapes[x], weight, bias, window, groups),
            lambda out: [_CONV, x, residual, out, *window.numbers(), groups, gate, int(follows), *self._act(act),
                         self._place(weight), self._place(bias)],
        )  # fmt: skip

    def gate(self, x: int, g: GateWeights) -> int:
        """Decides which channels of a convolution are open; gives the gate's number."""
        number = sum(operator[0] == _GATE for operator in self.operators)
        hidden, out = len(g.b1), len(g.b2)
        flags = [int(g.scales), g.group, g.top, int(g.absolute)]
        weights = [self._place(w) for w in (g.w1.T, g.b1, g.w2.T, g.b2, g.threshold, np.array([g.most]))]
        self.operators.append([_GATE, x, out, hidden, *flags, *weights])
        return number

    def linear(self, x: int, weight: Floats, bias: Floats, act: Activation = IDENTITY) -> int:
        """A fully connected layer on a vector."""
        return self._add(
            projected(self.shapes[x], weight, bias),
            lambda out: [_LINEAR, x, out, *self._act(act), self._place(weight), self._place(bias)],
        )

    def pool(self, x: int, window: Window, size: Pair, inverse: Floats | None = None) -> int:
        """The largest under the window; with ``inverse`` the sum times that number at every output pixel."""
        tail = [1] if inverse is None else [0, self._place(inverse)]
        return self._add((self.shapes[x][0], *size), lambda out: [_POOL, x, out, *window.numbers(), *tail])

    def adaptive(self, x: int, size: Pair, *, maximum: bool) -> int:
        """Adaptive pooling to a size."""
        return self._add((self.shapes[x][0], *size), lambda out: [_ADAPTIVE, x, out, int(maximum)])

    def activation(self, x: int, act: Activation) -> int:
        """A function of every element."""
        return self._add(self.shapes[x], lambda out: [_ACTIVATION, x, out, *self._act(act)])

    def add(self, a: int, b: int, act: Activation = IDENTITY) -> int:
        """act(a + b); a channel is live if either's is."""
        return self._add(combined(self.shapes[a], self.shapes[b]), lambda out: [_ADD, a, b, out, *self._act(act)])

    def multiply(self, a: int, b: int) -> int:
        """a · b, with b of the same shape or one number a channel."""
        shape = combined(self.shapes[a], self.shapes[b], by_channel=True)
        return self._add(shape, lambda out: [_MULTIPLY, a, b, out])

    def affine(self, x: int, scale: Floats, shift: Floats, *, fills: bool = True) -> int:
        """scale · x + shift, one of each a channel; without ``fills`` a pruned channel stays pruned."""
        return self._add(
            self.shapes[x],
            lambda out: [_AFFINE, x, out, self._place(scale), self._place(shift), int(fills), *self._act(IDENTITY)],
        )

    def concat(self, values: Sequence[int]) -> int:
        """The channels of several values, one after the other."""
        return self._add(joined([self.shapes[v] for v in values]), lambda out: [_CONCAT, len(values), *values, out])

    def channels(self, x: int, source: Sequence[int]) -> int:
        """Channel c of the result is channel source[c]: slices, splits, shuffles."""
        return self._add(chosen(self.shapes[x], source), lambda out: [_CHANNELS, x, out, *source])

    def flatten(self, x: int) -> int:
        """Every element as a channel of its own."""
        return self._add(flattened(self.shapes[x]), lambda out: [_FLATTEN, x, out])

    def _add(self, shape: Shape, operator: Any) -> int:
        self.shapes.append(shape)
        self.operators.append(operator(len(self.shapes) - 1))
        return len(self.shapes) - 1

    def _place(self, array: Floats) -> int:
        at = self._floats
        flat = np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
        self._data.append(flat)
        self._floats += flat.size
        return at

    def _act(self, act: Activation) -> list[int]:
        numbers = [ACTIVATIONS.index(act.kind), self._place(np.array([act.a, act.b], np.float32))]
        return numbers if act.slope is None else [*numbers, self._place(act.slope)]
