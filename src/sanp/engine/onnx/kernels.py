"""Convolutions in ONNX's operators: on floats, or on bytes by ConvInteger, whose sums are whole numbers."""

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from sanp.engine.lowering.shapes import Floats, Window
from sanp.engine.onnx.graph import OnnxGraph
from sanp.engine.quantise.ranges import Steps
from sanp.engine.quantise.weights import whole_weights

_WEIGHT_ZERO = 128
"""weights are written as bytes from 1 to 255, for ONNX Runtime is several times slower with signed ones"""


@dataclass(frozen=True)
class Kernel:
    """Names of a convolution's weights (C_out, C_in, height, width) and of its bias (C_out,)."""

    weight: str
    bias: str
    multiplier: str | None = None
    """on bytes (C_out,): what the sums of each channel are multiplied by"""
    steps: Steps | None = None
    """what the bytes that it reads stand for"""


class Kernels:
    """Writes the convolutions of a graph."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph
        self._bytes: dict[str, str] = {}
        """tensors of floats that are known as bytes, by name"""

    def of(self, weight: Floats, bias: Floats, groups: int, steps: Steps | None) -> Kernel:
        """The constants of a convolution, on bytes with ``steps``.

        With groups, for which ONNX Runtime's ConvInteger is slow, the same numbers are computed in floats.
        """
        if steps is None:
            return Kernel(self.graph.floats(weight), self.graph.floats(bias))
        whole, scale = whole_weights(weight)
        if groups > 1:
            rounded = whole * scale.reshape(-1, 1, 1, 1)
            return Kernel(self.graph.floats(rounded), self.graph.floats(bias), None, steps)
        multiplier = self.graph.floats(scale * steps.scale)
        weights = self.graph.constant((whole + _WEIGHT_ZERO).astype(np.uint8))
        return Kernel(weights, self.graph.floats(bias), multiplier, steps)

    def chosen(self, kernel: Kernel, outputs: str | None, inputs: str | None) -> Kernel:
        """The part of the open ``outputs`` and the live ``inputs``, which are names of lists; None for all."""
        weight, bias, multiplier = kernel.weight, kernel.bias, kernel.multiplier
        if outputs is not None:
            weight, bias = (self.graph.node("Gather", each, outputs, axis=0) for each in (weight, bias))
            multiplier = None if multiplier is None else self.graph.node("Gather", multiplier, outputs, axis=0)
        if inputs is not None:
            weight = self.graph.node("Gather", weight, inputs, axis=1)
        return Kernel(weight, bias, multiplier, kernel.steps)

    def convolve(self, x: str, kernel: Kernel, window: Window, groups: int) -> str:
        """weight * x + bias."""
        pads = [*window.padding, *window.after]
        options = {"strides": window.stride, "dilations": window.dilation, "pads": pads, "group": groups}
        if kernel.multiplier is None or kernel.steps is None:
            given = x if kernel.steps is None else self.rounded(x, kernel.steps)
            return self.graph.node("Conv", given, kernel.weight, kernel.bias, kernel_shape=window.kernel, **options)
        zeros = (self._zero(kernel.steps), self.graph.constant(np.uint8(_WEIGHT_ZERO)))
        read = self._as_bytes(x, kernel.steps)
        sums = self.graph.node("ConvInteger", read, kernel.weight, *zeros, kernel_shape=window.kernel, **options)
        factor, shift = (self.graph.reshape(each, [1, -1, 1, 1]) for each in (kernel.multiplier, kernel.bias))
        numbers = self.graph.node("Cast", sums, to=TensorProto.FLOAT)
        return self.graph.node("Add", self.graph.node("Mul", numbers, factor), shift)

    def rounded(self, x: str, steps: Steps) -> str:
        """The nearest numbers that bytes stand for."""
        made = self._as_bytes(x, steps)
        floats = self.graph.node("DequantizeLinear", made, self.graph.floats(steps.scale[0]), self._zero(steps))
        self._bytes[floats] = made
        return floats

    def _as_bytes(self, x: str, steps: Steps) -> str:
        if x not in self._bytes:
            scale = self.graph.floats(steps.scale[0])
            self._bytes[x] = self.graph.node("QuantizeLinear", x, scale, self._zero(steps))
        return self._bytes[x]

    def _zero(self, steps: Steps) -> str:
        return self.graph.constant(np.uint8(steps.zero))
