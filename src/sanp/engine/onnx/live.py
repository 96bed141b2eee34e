"""The values of an ONNX graph by their live channels: as lists of channels, as masks, and with zeros for the others."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from sanp.engine.lowering.shapes import Shape
from sanp.engine.onnx.graph import OnnxGraph

Mask = Callable[[], str]
"""gives the name of a tensor (1, C, 1, 1) of zeros and ones, whose nodes are written when it is first asked for"""


@dataclass(frozen=True)
class Live:
    """The live channels of a value."""

    tensor: str
    """the name of a tensor (1, n, H, W)"""
    index: str | None = None
    """the name of the list of the n channels' numbers; None where the tensor has all channels"""
    mask: Mask | None = None
    """where the tensor has all channels, which of them are live; None: all of them"""


class LiveValues:
    """Every value that a graph has made, by its number."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph
        self.shapes: list[Shape] = []
        self._live: list[Live] = []
        self._whole: dict[int, str] = {}

    def __getitem__(self, value: int) -> Live:
        return self._live[value]

    def keep(self, shape: Shape, live: Live) -> int:
        """Adds a value; gives its number."""
        self.shapes.append(shape)
        self._live.append(live)
        return len(self.shapes) - 1

    def dense(self, value: int) -> str:
        """All channels of a value, zeros where one is not live."""
        live = self._live[value]
        if live.index is None:
            return live.tensor
        if value in self._whole:
            return self._whole[value]
        channels, height, width = self.shapes[value]
        plane = self.graph.constant(np.zeros((1, 1, height, width), np.float32))
        count = self.graph.node("Shape", live.index)
        last = self.graph.node("Expand", count, self.graph.ints([channels]))  # the plane of zeros comes last
        first, step = self.graph.constant(np.int64(0)), self.graph.constant(np.int64(1))
        numbers = self.graph.node("Range", first, self.graph.node("Squeeze", count), step)
        place = self.graph.node("ScatterElements", last, live.index, numbers, axis=0)
        whole = self.graph.node("Gather", self.graph.node("Concat", live.tensor, plane, axis=1), place, axis=1)
        self._whole[value] = whole
        return whole

    def mask(self, value: int) -> Mask | None:
        """Which channels of a value are live; None: all of them."""
        live, channels = self._live[value], self.shapes[value][0]
        index = live.index
        if index is None:
            return live.mask

        @cache
        def mask() -> str:
            zeros = self.graph.constant(np.zeros(channels, np.float32))
            ones = self.graph.node("Expand", self.graph.floats(np.ones(1)), self.graph.node("Shape", index))
            return self.graph.reshape(self.graph.node("ScatterElements", zeros, index, ones, axis=0), [1, -1, 1, 1])

        return mask

    def either(self, a: int, b: int) -> Mask | None:
        """The channels that are live in one of two values, or in both; None: all of them."""
        left, right = self.mask(a), self.mask(b)
        if left is None or right is None:
            return None
        return cache(lambda: self.graph.node("Max", left(), right()))

    def both(self, a: int, b: int) -> Mask | None:
        """The channels that are live in both of two values; None: all of them."""
        left, right = self.mask(a), self.mask(b)
        if left is None or right is None:
            return left or right
        return cache(lambda: self.graph.node("Mul", left(), right()))

    def met(self, mask: Mask | None, other: str) -> Mask:
        """The channels of a mask, None for all, that are also in another one."""
        return cache(lambda: other if mask is None else self.graph.node("Mul", mask(), other))

    def joined(self, values: list[int]) -> Mask | None:
        """The live channels of several values, one after the other; None: all of them."""
        masks = [(self.mask(value), self.shapes[value][0]) for value in values]
        if all(mask is None for mask, _ in masks):
            return None

        def part(mask: Mask | None, channels: int) -> str:
            return self.graph.floats(np.ones((1, channels, 1, 1))) if mask is None else mask()

        return cache(lambda: self.graph.node("Concat", *(part(*given) for given in masks), axis=1))

    def repeated(self, mask: Mask, each: int) -> Mask:
        """The mask of a depthwise convolution that makes ``each`` outputs of every input."""
        if each == 1:
            return mask
        shape = self.graph.ints([1, -1, 1, 1])

        @cache
        def repeated() -> str:
            column = self.graph.reshape(mask(), [-1, 1])
            wide = self.graph.node("Mul", column, self.graph.floats(np.ones((1, each))))
            return self.graph.node("Reshape", wide, shape)

        return repeated

    def spread(self, index: str, each: int) -> str:
        """The list of live channels of a depthwise convolution that makes ``each`` outputs of every input."""
        first = self.graph.node("Mul", self.graph.reshape(index, [-1, 1]), self.graph.ints([each]))
        return self.graph.reshape(self.graph.node("Add", first, self.graph.ints(range(each))), [-1])
