"""Collects the nodes and constants of an ONNX graph, and writes activations in ONNX's operators."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sanp.engine.lowering.activation import Activation

_PLAIN = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "hardswish": "HardSwish"}


class OnnxGraph:
    """Nodes and constants; each method that makes a tensor gives its name."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._names = 0

    def name(self, stem: str) -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"{stem}_{self._names}"

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one result."""
        out = self.name(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """The same numbers in another shape."""
        return self.node("Reshape", x, self.ints(shape))

    def ints(self, numbers: Sequence[int]) -> str:
        """A constant of whole numbers."""
        return self.constant(np.array(list(numbers), np.int64))

    def floats(self, array: Any) -> str:
        """A constant of float32."""
        return self.constant(np.ascontiguousarray(array, np.float32).reshape(np.shape(array)))

    def constant(self, array: Any) -> str:
        """A constant of the array's own type."""
        name = self.name("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def activated(self, t: str, index: str | None, act: Activation) -> str:
        """An activation of a tensor (1, n, H, W); ``index`` names the list of its channels, None if all are there."""
        if act.kind in _PLAIN:
            return self.node(_PLAIN[act.kind], t)
        if act.kind == "clip":
            return self.node("Clip", t, self.floats(np.float32(act.a)), self.floats(np.float32(act.b)))
        if act.kind == "leaky":
            return self.node("LeakyRelu", t, alpha=act.a)
        if act.kind == "elu":
            return self.node("Elu", t, alpha=act.a)
        if act.kind == "hardsigmoid":
            return self.node("HardSigmoid", t, alpha=1 / 6, beta=0.5)
        if act.kind == "mish":
            return self.node("Mul", t, self.node("Tanh", self.node("Softplus", t)))
        if act.kind == "silu":
            return self.node("Mul", t, self.node("Sigmoid", t))
        if act.kind == "prelu" and act.slope is not None:
            slope = self.floats(act.slope.reshape(-1, 1, 1))
            return self.node("PRelu", t, slope if index is None else self.node("Gather", slope, index, axis=0))
        return self._gelu(t, tangent=act.kind == "gelu_tanh")

    def _gelu(self, x: str, *, tangent: bool) -> str:
        half, one = self.floats(np.float32(0.5)), self.floats(np.float32(1))
        if tangent:
            cube = self.node("Mul", x, self.node("Mul", x, x))
            inner = self.node("Add", x, self.node("Mul", cube, self.floats(np.float32(0.044715))))
            part = self.node("Tanh", self.node("Mul", inner, self.floats(np.float32((2 / np.pi) ** 0.5))))
        else:
            part = self.node("Erf", self.node("Mul", x, self.floats(np.float32(0.5**0.5))))
        return self.node("Mul", self.node("Mul", x, half), self.node("Add", part, one))
