"""Writes a program for the native library: values and operators as numbers, weights as one array of floats."""

from collections.abc import Callable, Sequence

import numpy as np

from sanp.engine.lowering import operators as ops
from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.lowering.other_operators import Gather, InstanceNorm, Interpolate, Power, Softmax, Unpool
from sanp.engine.lowering.shapes import (
    Between,
    Floats,
    Pair,
    Shape,
    Window,
    chosen,
    combined,
    convolved,
    flattened,
    joined_shape,
    projected,
)
from sanp.engine.names import OperatorKind
from sanp.engine.native_program import NativeProgram


class Weights:
    """Arrays whose floats are counted on from one to the next."""

    def __init__(self) -> None:
        self.arrays: list[Floats] = []
        self._floats = 0

    def place(self, array: Floats) -> int:
        """Adds an array; gives the number of its first float."""
        first = self._floats
        flat = np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
        self.arrays.append(flat)
        self._floats += flat.size
        return first


class ProgramWriter:
    """Collects operators; each method gives the number of the value that it makes."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self.operators: list[ops.Operator] = []

    def build(self) -> NativeProgram:
        """The program inside the library, ready to run."""
        code, weights = self.encoded()
        inputs = [self.shapes[operator.out] for operator in self.operators if isinstance(operator, ops.Input)]
        outputs = [self.shapes[operator.x] for operator in self.operators if isinstance(operator, ops.Output)]
        return NativeProgram(code, weights, inputs, outputs)

    def encoded(self) -> tuple[list[int], list[Floats]]:
        """The program as the library reads it: numbers, and the arrays of weights that they point into."""
        weights = Weights()
        code = [len(self.shapes), *(size for shape in self.shapes for size in shape)]
        for operator in self.operators:
            code += ops.encoded(operator, weights.place)
        return code, weights.arrays

    def input(self, channels: int, height: int, width: int) -> int:
        """A value that the caller gives."""
        return self._add((channels, height, width), lambda out: ops.Input(out=out))

    def output(self, value: int) -> None:
        """Marks a value that the caller gets."""
        self.operators.append(ops.Output(x=value))

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
        scale_after: bool = False,
    ) -> int:
        """A convolution, as :class:`Writer` explains it."""
        return self._add(
            convolved(self.shapes[x], weight, bias, window, groups),
            lambda out: ops.Conv(
                x=x, residual=residual, out=out, window=window, groups=groups, gate=gate, follows=follows,
                scale_after=scale_after, act=act, weight=weight, bias=bias,
            ),
        )  # fmt: skip

    def gate(self, x: int, weights: GateWeights) -> int:
        """Decides which channels of a convolution are open; gives the gate's number."""
        number = sum(operator.kind is OperatorKind.GATE for operator in self.operators)
        self.operators.append(ops.Gate(x=x, weights=weights))
        return number

    def linear(self, x: int, weight: Floats, bias: Floats, act: Activation = IDENTITY) -> int:
        """A fully connected layer on a vector."""
        shape = projected(self.shapes[x], weight, bias)
        return self._add(shape, lambda out: ops.Linear(x=x, out=out, act=act, weight=weight, bias=bias))

    def pool(self, x: int, window: Window, size: Pair, inverse: Floats | None = None) -> int:
        """The largest under the window; with ``inverse`` the sum times that number at every output pixel."""
        shape, maximum = (self.shapes[x][0], *size), inverse is None
        return self._add(shape, lambda out: ops.Pool(x=x, out=out, window=window, maximum=maximum, inverse=inverse))

    def adaptive(self, x: int, size: Pair, *, maximum: bool) -> int:
        """Adaptive pooling to a size."""
        return self._add((self.shapes[x][0], *size), lambda out: ops.Adaptive(x=x, out=out, maximum=maximum))

    def activation(self, x: int, act: Activation) -> int:
        """A function of every element."""
        return self._add(self.shapes[x], lambda out: ops.Activate(x=x, out=out, act=act))

    def add(self, a: int, b: int, act: Activation = IDENTITY) -> int:
        """act(a + b); a channel is live if either's is."""
        return self._add(combined(self.shapes[a], self.shapes[b]), lambda out: ops.Add(a=a, b=b, out=out, act=act))

    def multiply(self, a: int, b: int) -> int:
        """a · b, where b has the same shape or one number for each channel."""
        shape = combined(self.shapes[a], self.shapes[b], by_channel=True)
        return self._add(shape, lambda out: ops.Multiply(a=a, b=b, out=out))

    def affine(self, x: int, scale: Floats, shift: Floats, *, fills: bool = True) -> int:
        """scale · x + shift, with one of each for each channel; without ``fills`` a pruned channel stays pruned."""
        return self._add(
            self.shapes[x],
            lambda out: ops.Affine(x=x, out=out, scale=scale, shift=shift, fills=fills, act=IDENTITY),
        )

    def layer_norm(self, x: int, scale: Floats, shift: Floats, eps: float) -> int:
        """The channels of each pixel with a mean of 0 and a deviation of 1, then scaled and shifted."""
        small = np.array([eps], np.float32)
        return self._add(self.shapes[x], lambda out: ops.LayerNorm(x=x, out=out, scale=scale, shift=shift, eps=small))

    def concat(self, values: Sequence[int]) -> int:
        """The channels of several values, one after the other."""
        shape = joined_shape([self.shapes[v] for v in values])
        return self._add(shape, lambda out: ops.Concat(count=len(values), values=tuple(values), out=out))

    def channels(self, x: int, source: Sequence[int]) -> int:
        """Channel c of the result is channel source[c]: slices, splits, shuffles."""
        shape = chosen(self.shapes[x], source)
        return self._add(shape, lambda out: ops.Channels(x=x, out=out, source=tuple(source)))

    def flatten(self, x: int) -> int:
        """Every element as a channel of its own."""
        return self._add(flattened(self.shapes[x]), lambda out: ops.Flatten(x=x, out=out))

    def gather(self, x: int, rows: Sequence[int], columns: Sequence[int], shape: Shape) -> int:
        """Elements in another order, as :class:`Writer` explains it."""
        return self._add(
            shape, lambda out: Gather(x=x, out=out, count=len(rows), row=tuple(rows), column=tuple(columns))
        )

    def instance_norm(self, x: int, scale: Floats, shift: Floats, eps: float, gate: int = -1) -> int:
        """The pixels of each channel with a mean of 0 and a deviation of 1, then scaled, shifted and gated."""
        small = np.array([eps], np.float32)
        return self._add(
            self.shapes[x], lambda out: InstanceNorm(x=x, out=out, gate=gate, scale=scale, shift=shift, eps=small)
        )

    def softmax(self, x: int, *, logarithm: bool = False) -> int:
        """Over the rows of each channel."""
        return self._add(self.shapes[x], lambda out: Softmax(x=x, out=out, logarithm=logarithm))

    def resize(self, x: int, rows: Between, columns: Between) -> int:
        """Every row and column between two of x."""
        return self._add(
            (self.shapes[x][0], len(rows.first), len(columns.first)),
            lambda out: Interpolate(
                x=x, out=out, y0=rows.first, y1=rows.second, x0=columns.first, x1=columns.second,
                weight_y=rows.weight, weight_x=columns.weight,
            ),
        )  # fmt: skip

    def unpool(self, a: int, b: int, window: Window) -> int:
        """Each number of a at the place of the largest of b under its window."""
        return self._add(self.shapes[b], lambda out: Unpool(a=a, b=b, out=out, window=window))

    def power(self, x: int, exponent: float) -> int:
        """Every element to a power."""
        given = np.array([exponent], np.float32)
        return self._add(self.shapes[x], lambda out: Power(x=x, out=out, exponent=given))

    def _add(self, shape: Shape, operator: Callable[[int], ops.Operator]) -> int:
        self.shapes.append(shape)
        self.operators.append(operator(len(self.shapes) - 1))
        return len(self.shapes) - 1
