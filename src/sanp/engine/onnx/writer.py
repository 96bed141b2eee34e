"""Writes an ONNX graph for one image that gathers the weights of open channels, so that no pruned one is computed; or
one that computes every channel and multiplies the pruned ones by zero.

A value is a tensor (1, n, H, W) of its n live channels with the list of their numbers, or a tensor of all channels.
Of all channels a mask may say which are live, for a depthwise convolution adds its bias to no others.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from onnx import NodeProto, TensorProto

from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.gate_weights import GateWeights
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
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.onnx.decision import Decision, decide
from sanp.engine.onnx.graph import OnnxGraph
from sanp.engine.onnx.kernels import Kernel, Kernels
from sanp.engine.onnx.live import Live, LiveValues, Mask
from sanp.engine.onnx.others import as_matrix, gathered, normalised
from sanp.engine.onnx.pooling import pooled, pooled_to
from sanp.engine.quantise.ranges import Steps


class OnnxWriter:
    """A :class:`Writer` that collects the nodes and constants of an ONNX graph."""

    def __init__(self, *, skips: bool = True) -> None:
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self._skips = skips
        self._graph = OnnxGraph()
        self._kernels = Kernels(self._graph)
        self._values = LiveValues(self._graph)
        self._gates: list[Decision] = []

    @property
    def shapes(self) -> list[Shape]:
        """The shape (C, H, W) of every value."""
        return self._values.shapes

    @property
    def operators(self) -> list[NodeProto]:
        """The nodes of the body, in order of execution."""
        return self._graph.nodes

    @property
    def constants(self) -> list[TensorProto]:
        """The weights and other constants that the nodes read."""
        return self._graph.constants

    def input(self, channels: int, height: int, width: int) -> int:
        """An image without its batch dimension, as the Scan around this graph gives it."""
        name = self._graph.name("image")
        self.inputs.append(name)
        return self._values.keep(
            (channels, height, width), Live(self._graph.node("Unsqueeze", name, self._graph.ints([0])))
        )

    def output(self, value: int) -> None:
        """Marks a value that the caller gets: all channels, without the batch dimension."""
        self.outputs.append(self._graph.node("Squeeze", self._values.dense(value), self._graph.ints([0])))

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
        steps: Steps | None = None,
    ) -> int:
        """A convolution with gathered weights; with groups, whose number ONNX fixes, all channels are computed.

        With ``steps`` it is one on bytes.
        """
        shape = convolved(self.shapes[x], weight, bias, window, groups)
        decision = self._gates[gate] if gate >= 0 else None
        kernel = self._kernels.of(weight, bias, groups, steps)
        inner, index = act if scale_after else IDENTITY, decision.index if decision else None
        if groups > 1:
            y, index, mask = self._grouped(x, kernel, window, groups, len(weight), inner, index, follows)
        else:
            source, mask = self._values[x], None
            y = self._kernels.convolve(source.tensor, self._kernels.chosen(kernel, index, source.index), window, 1)
            y = y if inner.kind == "none" else self._graph.activated(y, index, inner)
        if decision and decision.scale:
            y = self._graph.node("Mul", y, decision.scale)
        if decision and decision.mask:
            mask = self._values.met(mask, decision.mask)
        made = self._values.keep(shape, Live(y, index, mask))
        if residual >= 0:
            made = self.add(made, residual)
        return made if act.kind == "none" or scale_after else self.activation(made, act)

    def _grouped(
        self, x: int, kernel: Kernel, window: Window, groups: int, outputs: int, act: Activation, index: str | None,
        follows: bool,
    ) -> tuple[str, str | None, Mask | None]:  # fmt: skip
        """A convolution in groups, of which all channels are computed: its tensor, list of channels, and mask.

        ``outputs`` is the number of its channels, ``index`` the list of those that its gate opens.
        """
        source, each, mask = self._values[x], outputs // groups, None
        y = self._kernels.convolve(self._values.dense(x), kernel, window, groups)
        y = y if act.kind == "none" else self._graph.activated(y, None, act)
        if follows and source.index is not None:
            index = source.index if each == 1 else self._values.spread(source.index, each)
        elif follows and source.mask is not None:
            mask = self._values.repeated(source.mask, each)
            y = self._graph.node("Mul", y, mask())
        return (y if index is None else self._graph.node("Gather", y, index, axis=1)), index, mask

    def gate(self, x: int, weights: GateWeights) -> int:
        """The saliency, the decision, and the list of open channels; gives the gate's number."""
        source = self._values[x]
        self._gates.append(decide(self._graph, source.tensor, source.index, weights, listed=self._skips))
        return len(self._gates) - 1

    def linear(self, x: int, weight: Floats, bias: Floats, act: Activation = IDENTITY) -> int:
        """A fully connected layer with the weights of the live inputs."""
        source, w = self._values[x], self._graph.floats(weight.T)
        if source.index is not None:
            w = self._graph.node("Gather", w, source.index, axis=0)
        flat = self._graph.reshape(source.tensor, [1, -1])
        y = self._graph.node("Add", self._graph.node("MatMul", flat, w), self._graph.floats(bias))
        made = self._values.keep(
            projected(self.shapes[x], weight, bias), Live(self._graph.reshape(y, [1, len(weight), 1, 1]))
        )
        return made if act.kind == "none" else self.activation(made, act)

    def pool(self, x: int, window: Window, size: Pair, inverse: Floats | None = None) -> int:
        """The largest number under each window, or the sum times ``inverse``."""
        channels, *extent = self.shapes[x]
        source = self._values[x]
        y = pooled(self._graph, source.tensor, (extent[0], extent[1]), window, size, inverse)
        return self._values.keep((channels, *size), Live(y, source.index, source.mask))

    def adaptive(self, x: int, size: Pair, *, maximum: bool) -> int:
        """Adaptive pooling where all windows are of one size."""
        channels, *extent = self.shapes[x]
        source = self._values[x]
        y = pooled_to(self._graph, source.tensor, (extent[0], extent[1]), size, maximum=maximum)
        return self._values.keep((channels, *size), Live(y, source.index, source.mask))

    def activation(self, x: int, act: Activation) -> int:
        """A function of every element; of all channels if it makes something else of zero."""
        keeps = act.kind not in ("sigmoid", "hardsigmoid") and (act.kind != "clip" or act.a <= 0 <= act.b)
        source = self._values[x] if keeps else Live(self._values.dense(x))
        y = self._graph.activated(source.tensor, source.index, act)
        return self._values.keep(self.shapes[x], Live(y, source.index, source.mask))

    def add(self, a: int, b: int, act: Activation = IDENTITY) -> int:
        """act(a + b) of all channels, or of the live ones where both have the same list."""
        shape = combined(self.shapes[a], self.shapes[b])
        left, right = self._values[a], self._values[b]
        if left.index == right.index:
            y = self._graph.node("Add", left.tensor, right.tensor)
        else:
            y = self._graph.node("Add", self._values.dense(a), self._values.dense(b))
        made = self._values.keep(
            shape, Live(y, left.index if left.index == right.index else None, self._values.either(a, b))
        )
        return made if act.kind == "none" else self.activation(made, act)

    def multiply(self, a: int, b: int) -> int:
        """a · b, where b has the same shape or one number for each channel."""
        shape = combined(self.shapes[a], self.shapes[b], by_channel=True)
        left, right = self._values[a], self._values[b]
        if left.index == right.index:
            y = self._graph.node("Mul", left.tensor, right.tensor)
            return self._values.keep(shape, Live(y, left.index, self._values.both(a, b)))
        if left.index is not None and right.index is None and right.mask is None:
            chosen = self._graph.node("Gather", right.tensor, left.index, axis=1)
            return self._values.keep(shape, Live(self._graph.node("Mul", left.tensor, chosen), left.index))
        y = self._graph.node("Mul", self._values.dense(a), self._values.dense(b))
        return self._values.keep(shape, Live(y, mask=self._values.both(a, b)))

    def affine(self, x: int, scale: Floats, shift: Floats, *, fills: bool = True) -> int:
        """scale · x + shift, with one of each for each channel."""
        source = Live(self._values.dense(x)) if fills else self._values[x]
        factor = self._graph.floats(scale.reshape(1, -1, 1, 1))
        if source.index is not None:
            factor = self._graph.node("Gather", factor, source.index, axis=1)
        y = self._graph.node("Mul", source.tensor, factor)
        if fills:
            y = self._graph.node("Add", y, self._graph.floats(shift.reshape(1, -1, 1, 1)))
        return self._values.keep(self.shapes[x], Live(y, source.index, source.mask))

    def layer_norm(self, x: int, scale: Floats, shift: Floats, eps: float) -> int:
        """Mean and variance over the channels of each pixel."""
        y = normalised(self._graph, self._values.dense(x), [1], scale, shift, eps)
        return self._values.keep(self.shapes[x], Live(y))

    def concat(self, values: Sequence[int]) -> int:
        """The channels of several values, one after the other."""
        shape = joined_shape([self.shapes[v] for v in values])
        mask = self._values.joined(list(values))
        y = self._graph.node("Concat", *(self._values.dense(v) for v in values), axis=1)
        return self._values.keep(shape, Live(y, mask=mask))

    def channels(self, x: int, source: Sequence[int]) -> int:
        """Channel c of the result is channel source[c]."""
        before = self._values.mask(x)

        @cache
        def mask() -> str:
            assert before is not None
            return self._graph.node("Gather", before(), self._graph.ints(source), axis=1)

        y = self._graph.node("Gather", self._values.dense(x), self._graph.ints(source), axis=1)
        return self._values.keep(chosen(self.shapes[x], source), Live(y, mask=None if before is None else mask))

    def flatten(self, x: int) -> int:
        """Every element as a channel of its own."""
        shape = flattened(self.shapes[x])
        return self._values.keep(shape, Live(self._graph.reshape(self._values.dense(x), [1, *shape])))

    def rounded(self, x: int, steps: Steps) -> int:
        """The nearest numbers that bytes stand for."""
        source = self._values[x]
        return self._values.keep(
            self.shapes[x], Live(self._kernels.rounded(source.tensor, steps), source.index, source.mask)
        )

    def gather(self, x: int, rows: Sequence[int], columns: Sequence[int], shape: Shape) -> int:
        """Elements in another order."""
        return self._values.keep(shape, gathered(self._values, x, rows, columns, shape))

    def instance_norm(self, x: int, scale: Floats, shift: Floats, eps: float, gate: int = -1) -> int:
        """Mean and variance over the pixels of each channel; then a gate's choice of channels."""
        y = normalised(self._graph, self._values.dense(x), [2, 3], scale, shift, eps)
        decision = self._gates[gate] if gate >= 0 else None
        if decision is None:
            return self._values.keep(self.shapes[x], Live(y))
        y = self._graph.node("Gather", y, decision.index, axis=1) if decision.index else y
        y = self._graph.node("Mul", y, decision.scale) if decision.scale else y
        mask = self._values.met(None, decision.mask) if decision.mask else None
        return self._values.keep(self.shapes[x], Live(y, decision.index, mask))

    def softmax(self, x: int, *, logarithm: bool = False) -> int:
        """Over the rows of each channel."""
        name = "LogSoftmax" if logarithm else "Softmax"
        return self._values.keep(self.shapes[x], Live(self._graph.node(name, self._values.dense(x), axis=2)))

    def resize(self, x: int, rows: Between, columns: Between) -> int:
        """Products with matrices that have the weights of rows and columns."""
        channels, height, width = self.shapes[x]
        source, size = self._values[x], (len(rows.first), len(columns.first))
        y = self._graph.node("MatMul", self._graph.floats(as_matrix(rows, height)), source.tensor)
        y = self._graph.node("MatMul", y, self._graph.floats(as_matrix(columns, width).T))
        return self._values.keep((channels, *size), Live(y, source.index, source.mask))

    def unpool(self, a: int, b: int, window: Window) -> int:
        """Not written: the indices of a pooling count otherwise in ONNX."""
        raise Unsupported("numbers put back to the places of a maximum")

    def power(self, x: int, exponent: float) -> int:
        """Every element to a power."""
        y = self._graph.node("Pow", self._values.dense(x), self._graph.floats(np.float32(exponent)))
        return self._values.keep(self.shapes[x], Live(y))

    def _convolve(self, x: str, w: str, b: str, window: Window, groups: int) -> str:
        pads = [*window.padding, *window.after]
        options = {"strides": window.stride, "dilations": window.dilation, "pads": pads, "group": groups}
        return self._graph.node("Conv", x, w, b, kernel_shape=window.kernel, **options)
