"""Writes the body of an ONNX graph for one image, in which a pruned channel is never computed: weights are gathered.

It has the methods of :class:`ProgramWriter`, so the same lowering drives both. A value is a tensor (1, n, H, W) of its
live channels and the list of their numbers, or all channels and no list.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sanp.engine.gates import Unsupported
from sanp.engine.program import IDENTITY, Activation, Floats, GateWeights, Pair, Window

_PLAIN = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "hardswish": "HardSwish"}


@dataclass(frozen=True)
class Live:
    """A tensor of live channels; ``index`` names the list of their numbers, None if all are there."""

    tensor: str
    index: str | None = None


@dataclass(frozen=True)
class Decision:
    """What a gate gave: the numbers of the open channels and their saliencies (1, n, 1, 1)."""

    index: str
    scale: str | None


class OnnxWriter:
    """Collects nodes; each method gives the number of the value that it makes."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int, int]] = []
        self.operators: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self._values: list[Live] = []
        self._gates: list[Decision] = []
        self._names = 0

    def input(self, channels: int, height: int, width: int) -> int:
        """An image without its batch dimension, which the graph around gives."""
        name = self._name("image")
        self.inputs.append(name)
        return self._keep((channels, height, width), Live(self._node("Unsqueeze", name, self._ints([0]))))

    def output(self, value: int) -> None:
        """Marks a value of the result: all channels, without the batch dimension."""
        self.outputs.append(self._node("Squeeze", self._dense(value), self._ints([0])))

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
        """A convolution of gathered weights; of all of them where channels stand in groups, which ONNX fixes."""
        _, height, width = self.shapes[x]
        shape = (weight.shape[0], *window.out((height, width)))
        source = self._values[x]
        decision = self._gates[gate] if gate >= 0 else None
        index = decision.index if decision else None
        w, b = self._floats(weight), self._floats(bias)
        if groups > 1:
            y = self._convolve(self._dense(x), w, b, window, groups)
            if follows and source.index is not None:
                index = source.index if len(weight) == groups else self._spread(source.index, len(weight) // groups)
            y = y if index is None else self._node("Gather", y, index, axis=1)
        else:
            if index is not None:
                w, b = self._node("Gather", w, index, axis=0), self._node("Gather", b, index, axis=0)
            if source.index is not None:
                w = self._node("Gather", w, source.index, axis=1)
            y = self._convolve(source.tensor, w, b, window, 1)
        if decision and decision.scale:
            y = self._node("Mul", y, decision.scale)
        made = self._keep(shape, Live(y, index))
        if residual >= 0:
            made = self.add(made, residual)
        return made if act.kind == "none" else self.activation(made, act)

    def gate(self, x: int, g: GateWeights) -> int:
        """Saliency, decision, and the list of open channels; gives the gate's number."""
        source, out = self._values[x], len(g.b2)
        saliency = self._floats(g.b2[None])
        if len(g.b1):
            values = self._node("Abs", source.tensor) if g.absolute else source.tensor
            descriptor = self._node("ReduceMean", values, axes=[2, 3], keepdims=0)  # (1, n)
            w1 = self._floats(g.w1.T)
            if source.index is not None:
                w1 = self._node("Gather", w1, source.index, axis=0)
            hidden = self._node("Relu", self._node("Add", self._node("MatMul", descriptor, w1), self._floats(g.b1)))
            saliency = self._node("Add", self._node("MatMul", hidden, self._floats(g.w2.T)), saliency)
        score = self._node("Sub", saliency, self._floats(g.threshold[None]))
        if g.group > 1:
            score = self._node("ReduceMean", self._reshape(score, [1, -1, g.group]), axes=[2], keepdims=0)
        opened = self._top(score, g.top, out // g.group) if g.top else self._positive(score, out // g.group)
        if g.group > 1:
            spread = self._node("Expand", self._reshape(opened, [1, -1, 1]), self._ints([1, out // g.group, g.group]))
            opened = self._reshape(spread, [1, out])
        index = self._node("Squeeze", self._node("NonZero", self._reshape(opened, [out])), self._ints([0]))
        scale = None
        if g.scales:
            scale = self._reshape(self._node("Gather", saliency, index, axis=1), [1, -1, 1, 1])
        self._gates.append(Decision(index, scale))
        return len(self._gates) - 1

    def linear(self, x: int, weight: Floats, bias: Floats, act: Activation = IDENTITY) -> int:
        """A fully connected layer: the rows of the live inputs."""
        source, w = self._values[x], self._floats(weight.T)
        if source.index is not None:
            w = self._node("Gather", w, source.index, axis=0)
        flat = self._reshape(source.tensor, [1, -1])
        y = self._node("Add", self._node("MatMul", flat, w), self._floats(bias))
        made = self._keep((len(weight), 1, 1), Live(self._reshape(y, [1, len(weight), 1, 1])))
        return made if act.kind == "none" else self.activation(made, act)

    def pool(self, x: int, window: Window, size: Pair, inverse: Floats | None = None) -> int:
        """Pooling of a map that is padded first, so that windows over the edge mean the same everywhere."""
        channels, *extent = self.shapes[x]
        source = self._values[x]
        steps = zip(size, window.stride, window.dilation, window.kernel, strict=True)
        reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in steps]
        after = [max(0, r - e - p) for r, e, p in zip(reach, extent, window.padding, strict=True)]
        pads = self._ints([0, 0, *window.padding, 0, 0, *after])
        edge = self._floats(np.float32(-np.inf if inverse is None else 0))
        y = self._node("Pad", source.tensor, pads, edge)
        options = {"kernel_shape": window.kernel, "strides": window.stride}
        if inverse is None:
            y = self._node("MaxPool", y, **options, dilations=window.dilation)
        else:
            taps = window.kernel[0] * window.kernel[1]
            y = self._node("Mul", self._node("AveragePool", y, **options), self._floats(inverse * np.float32(taps)))
        return self._keep((channels, *size), Live(y, source.index))

    def adaptive(self, x: int, size: Pair, *, maximum: bool) -> int:
        """Adaptive pooling where all windows are of one size."""
        channels, *extent = self.shapes[x]
        source = self._values[x]
        if size == (1, 1):
            y = self._node("ReduceMax" if maximum else "ReduceMean", source.tensor, axes=[2, 3], keepdims=1)
        elif extent[0] % size[0] == 0 and extent[1] % size[1] == 0:
            kernel = [extent[0] // size[0], extent[1] // size[1]]
            kind = "MaxPool" if maximum else "AveragePool"
            y = self._node(kind, source.tensor, kernel_shape=kernel, strides=kernel)
        else:
            raise Unsupported("adaptive pooling with windows of different sizes")
        return self._keep((channels, *size), Live(y, source.index))

    def activation(self, x: int, act: Activation) -> int:
        """A function of every element; of all channels if it does not keep zero."""
        keeps = act.kind not in ("sigmoid", "hardsigmoid") and (act.kind != "clip" or act.a <= 0 <= act.b)
        source = self._values[x] if keeps else Live(self._dense(x))
        return self._keep(self.shapes[x], Live(self._activated(source, act), source.index))

    def add(self, a: int, b: int, act: Activation = IDENTITY) -> int:
        """act(a + b) of all channels, or of the live ones if both have the same."""
        left, right = self._values[a], self._values[b]
        if left.index == right.index:
            made = self._keep(self.shapes[a], Live(self._node("Add", left.tensor, right.tensor), left.index))
        else:
            made = self._keep(self.shapes[a], Live(self._node("Add", self._dense(a), self._dense(b))))
        return made if act.kind == "none" else self.activation(made, act)

    def multiply(self, a: int, b: int) -> int:
        """a · b, with b of the same shape or one number a channel."""
        left, right = self._values[a], self._values[b]
        if left.index == right.index:
            return self._keep(self.shapes[a], Live(self._node("Mul", left.tensor, right.tensor), left.index))
        if left.index is not None and right.index is None:
            chosen = self._node("Gather", right.tensor, left.index, axis=1)
            return self._keep(self.shapes[a], Live(self._node("Mul", left.tensor, chosen), left.index))
        return self._keep(self.shapes[a], Live(self._node("Mul", self._dense(a), self._dense(b))))

    def affine(self, x: int, scale: Floats, shift: Floats, *, fills: bool = True) -> int:
        """scale · x + shift, one of each a channel."""
        source = Live(self._dense(x)) if fills else self._values[x]
        factor = self._floats(scale.reshape(1, -1, 1, 1))
        if source.index is not None:
            factor = self._node("Gather", factor, source.index, axis=1)
        y = self._node("Mul", source.tensor, factor)
        if fills:
            y = self._node("Add", y, self._floats(shift.reshape(1, -1, 1, 1)))
        return self._keep(self.shapes[x], Live(y, source.index))

    def concat(self, values: Sequence[int]) -> int:
        """The channels of several values, one after the other."""
        shape = (sum(self.shapes[v][0] for v in values), *self.shapes[values[0]][1:])
        return self._keep(shape, Live(self._node("Concat", *(self._dense(v) for v in values), axis=1)))

    def channels(self, x: int, source: Sequence[int]) -> int:
        """Channel c of the result is channel source[c]."""
        y = self._node("Gather", self._dense(x), self._ints(source), axis=1)
        return self._keep((len(source), *self.shapes[x][1:]), Live(y))

    def flatten(self, x: int) -> int:
        """Every element as a channel of its own."""
        count = int(np.prod(self.shapes[x]))
        return self._keep((count, 1, 1), Live(self._reshape(self._dense(x), [1, count, 1, 1])))

    def _convolve(self, x: str, w: str, b: str, window: Window, groups: int) -> str:
        pads = [*window.padding, *window.padding]
        options = {"strides": window.stride, "dilations": window.dilation, "pads": pads, "group": groups}
        return self._node("Conv", x, w, b, kernel_shape=window.kernel, **options)

    def _positive(self, score: str, count: int) -> str:
        """1[score > 0], and the largest where none is."""
        positive = self._node("Greater", score, self._floats(np.float32(0)))
        counted = self._node("ReduceMax", self._node("Cast", positive, to=TensorProto.INT64), axes=[1], keepdims=1)
        none = self._node("Equal", counted, self._ints([0]))
        best = self._node("ArgMax", score, axis=1, keepdims=1)
        is_best = self._node("Equal", best, self._ints(range(count)))
        return self._node("Cast", self._node("Or", positive, self._node("And", none, is_best)), to=TensorProto.INT64)

    def _top(self, score: str, top: int, count: int) -> str:
        """1 for the largest ``top``."""
        values, chosen = self._name("top"), self._name("chosen")
        self.operators.append(helper.make_node("TopK", [score, self._ints([top])], [values, chosen], axis=1))
        zeros = self._constant(np.zeros((1, count), np.int64))
        ones = self._constant(np.ones((1, top), np.int64))
        return self._node("ScatterElements", zeros, chosen, ones, axis=1)

    def _spread(self, index: str, each: int) -> str:
        """The outputs of a depthwise convolution that makes several of each input."""
        first = self._node("Mul", self._reshape(index, [-1, 1]), self._ints([each]))
        return self._reshape(self._node("Add", first, self._ints(range(each))), [-1])

    def _dense(self, value: int) -> str:
        """All channels of a value, zeros where it has none."""
        live = self._values[value]
        if live.index is None:
            return live.tensor
        channels, height, width = self.shapes[value]
        plane = self._constant(np.zeros((1, 1, height, width), np.float32))
        count = self._node("Shape", live.index)
        last = self._node("Expand", count, self._ints([channels]))  # the plane of zeros comes after the live ones
        first, step = self._constant(np.int64(0)), self._constant(np.int64(1))
        numbers = self._node("Range", first, self._node("Squeeze", count), step)
        place = self._node("ScatterElements", last, live.index, numbers, axis=0)
        whole = self._node("Gather", self._node("Concat", live.tensor, plane, axis=1), place, axis=1)
        self._values[value] = Live(whole)
        return whole

    def _activated(self, x: Live, act: Activation) -> str:
        t = x.tensor
        if act.kind in _PLAIN:
            return self._node(_PLAIN[act.kind], t)
        if act.kind == "clip":
            return self._node("Clip", t, self._floats(np.float32(act.a)), self._floats(np.float32(act.b)))
        if act.kind == "leaky":
            return self._node("LeakyRelu", t, alpha=act.a)
        if act.kind == "elu":
            return self._node("Elu", t, alpha=act.a)
        if act.kind == "hardsigmoid":
            return self._node("HardSigmoid", t, alpha=1 / 6, beta=0.5)
        if act.kind == "silu":
            return self._node("Mul", t, self._node("Sigmoid", t))
        if act.kind == "prelu" and act.slope is not None:
            slope = self._floats(act.slope.reshape(-1, 1, 1))
            return self._node("PRelu", t, slope if x.index is None else self._node("Gather", slope, x.index, axis=0))
        return self._gelu(t, tangent=act.kind == "gelu_tanh")

    def _gelu(self, x: str, *, tangent: bool) -> str:
        half, one = self._floats(np.float32(0.5)), self._floats(np.float32(1))
        if tangent:
            cube = self._node("Mul", x, self._node("Mul", x, x))
            inner = self._node("Add", x, self._node("Mul", cube, self._floats(np.float32(0.044715))))
            part = self._node("Tanh", self._node("Mul", inner, self._floats(np.float32((2 / np.pi) ** 0.5))))
        else:
            part = self._node("Erf", self._node("Mul", x, self._floats(np.float32(0.5**0.5))))
        return self._node("Mul", self._node("Mul", x, half), self._node("Add", part, one))

    def _keep(self, shape: tuple[int, ...], live: Live) -> int:
        self.shapes.append((shape[0], shape[1], shape[2]))
        self._values.append(live)
        return len(self.shapes) - 1

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}_{self._names}"

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        out = self._name(kind.lower())
        self.operators.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def _reshape(self, x: str, shape: Sequence[int]) -> str:
        return self._node("Reshape", x, self._ints(shape))

    def _ints(self, numbers: Sequence[int]) -> str:
        return self._constant(np.array(list(numbers), np.int64))

    def _floats(self, array: Any) -> str:
        return self._constant(np.ascontiguousarray(array, np.float32).reshape(np.shape(array)))

    def _constant(self, array: Any) -> str:
        name = self._name("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name
