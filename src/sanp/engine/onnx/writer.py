"""Writes an ONNX graph for one image in which a pruned channel is never computed, for weights are gathered; or, if
asked for, one that computes every channel and multiplies the pruned ones by zero.

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
from sanp.engine.onnx.kernels import Kernels
from sanp.engine.onnx.live import Live, LiveValues, Mask
from sanp.engine.onnx.others import as_matrix, gathered, normalised
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
        source = self._values[x]
        decision = self._gates[gate] if gate >= 0 else None
        index = decision.index if decision else None
        kernel = self._kernels.of(weight, bias, groups, steps)
        mask: Mask | None = None
        if groups > 1:
            y = self._kernels.convolve(self._values.dense(x), kernel, window, groups)
            if scale_after:
                y = self._graph.activated(y, None, act)
            if follows and source.index is not None:
                index = (
                    source.index if len(weight) == groups else self._values.spread(source.index, len(weight) // groups)
                )
            elif follows and source.mask is not None:
                mask = self._values.repeated(source.mask, len(weight) // groups)
                y = self._graph.node("Mul", y, mask())
            y = y if index is None else self._graph.node("Gather", y, index, axis=1)
        else:
            y = self._kernels.convolve(source.tensor, self._kernels.chosen(kernel, index, source.index), window, 1)
            if scale_after:
                y = self._graph.activated(y, index, act)
        if decision and decision.scale:
            y = self._graph.node("Mul", y, decision.scale)
        if decision and decision.mask:
            mask = self._values.met(mask, decision.mask)
        made = self._values.keep(shape, Live(y, index, mask))
        if residual >= 0:
            made = self.add(made, residual)
        return made if act.kind == "none" or scale_after else self.activation(made, act)

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
        """Pooling of a map that is padded first, so that windows over the edge mean the same in every runtime."""
        channels, *extent = self.shapes[x]
        source = self._values[x]
        steps = zip(size, window.stride, window.dilation, window.kernel, strict=True)
        reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in steps]
        after = [max(0, r - e - p) for r, e, p in zip(reach, extent, window.padding, strict=True)]
        pads = self._graph.ints([0, 0, *window.padding, 0, 0, *after])
        edge = self._graph.floats(np.float32(-np.inf if inverse is None else 0))
        y = self._graph.node("Pad", source.tensor, pads, edge)
        options = {"kernel_shape": window.kernel, "strides": window.stride}
        if inverse is None:
            y = self._graph.node("MaxPool", y, **options, dilations=window.dilation)
        else:
            taps = window.kernel[0] * window.kernel[1]
            y = self._graph.node(
                "Mul", self._graph.node("AveragePool", y, **options), self._graph.floats(inverse * np.float32(taps))
            )
        return self._values.keep((channels, *size), Live(y, source.index, source.mask))

    def adaptive(self, x: int, size: Pair, *, maximum: bool) -> int:
        """Adaptive pooling where all windows are of one size."""
        channels, *extent = self.shapes[x]
        source = self._values[x]
        if size == (1, 1):
            y = self._graph.node("ReduceMax" if maximum else "ReduceMean", source.tensor, axes=[2, 3], keepdims=1)
        elif extent[0] % size[0] == 0 and extent[1] % size[1] == 0:
            kernel = [extent[0] // size[0], extent[1] // size[1]]
            kind = "MaxPool" if maximum else "AveragePool"
            y = self._graph.node(kind, source.tensor, kernel_shape=kernel, strides=kernel)
        else:
            raise Unsupported("adaptive pooling with windows of different sizes")
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
        graph, source = self._graph, self._values.dense(x)
        d = graph.node("Sub", source, graph.node("ReduceMean", source, axes=[1], keepdims=1))
        var = graph.node("ReduceMean", graph.node("Mul", d, d), axes=[1], keepdims=1)
        y = graph.node("Div", d, graph.node("Sqrt", graph.node("Add", var, graph.floats(np.float32(eps)))))
        y = graph.node("Mul", y, graph.floats(scale.reshape(1, -1, 1, 1)))
        y = graph.node("Add", y, graph.floats(shift.reshape(1, -1, 1, 1)))
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
        y = normalised(self._graph, self._values.dense(x), scale, shift, eps)
        decision = self._gates[gate] if gate >= 0 else None
        if decision is None:
            return self._values.keep(self.shapes[x], Live(y))
        y = self._graph.node("Gather", y, decision.index, axis=1) if decision.index else y
        y = self._graph.node("Mul", y, decision.scale) if decision.scale else y
        mask = self._values.met(None, decision.mask) if decision.mask else None
        return self._values.keep(self.shapes[x], Live(y, decision.index, mask))

    def softmax(self, x: int) -> int:
        """Over the rows of each channel."""
        return self._values.keep(self.shapes[x], Live(self._graph.node("Softmax", self._values.dense(x), axis=2)))

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
