"""A bound of an image's cost that needs only the numbers of open channels, not which ones are open.

It is the FLOPs formula with the most inputs and outputs that can be live. Where features are added, channels of both
sides may fall together, and the bound counts them twice, up to the width of the layer; elsewhere it is the cost itself.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sanp.gating.cost import CostModel
from sanp.gating.flops import conv_flops
from sanp.tracing.masks import LIVE, ZERO, Block, MaskTable
from sanp.tracing.topology import Layer

Counts = NDArray[np.int64]
"""numbers of channels, of any shape"""


@dataclass(frozen=True)
class GateReach:
    """What one gate can make live on one side of a layer."""

    gate: int
    """its place among the gates"""
    each: int
    """channels of the side that one open channel makes live at the most"""
    most: int
    """channels of the side that depend on the gate"""


@dataclass(frozen=True)
class LayerSide:
    """The inputs or the outputs of a layer: how many of them can be live."""

    fixed: int
    """channels that are always live"""
    width: int
    """channels that can be live at all"""
    parts: tuple[GateReach, ...]

    def live(self, counts: Sequence[Any]) -> Any:
        """The most channels that can be live; ``counts`` has the open channels of each gate, in shapes that broadcast.

        One number if no gate has a say.
        """
        found: Any = self.fixed
        for part in self.parts:
            found = found + np.minimum(counts[part.gate] * part.each, part.most)
        return np.minimum(found, self.width)


@dataclass(frozen=True)
class ConvBound:
    """A convolution: its sizes, and both sides."""

    positions: int
    taps: int
    most_inputs: int
    """that an output channel reads"""
    inputs: LayerSide
    outputs: LayerSide

    def flops(self, counts: Sequence[Any]) -> Any:
        """The most FLOPs that it can take; ``counts`` are those of :meth:`LayerSide.live`."""
        inputs = np.minimum(self.inputs.live(counts), self.most_inputs)
        return conv_flops(self.positions, inputs, self.taps, self.outputs.live(counts))


class CostBound:
    """The bound of a network's cost; ``cost`` is the network's cost model."""

    def __init__(self, cost: CostModel) -> None:
        self.gates = tuple(cost.gates)
        """names, in order of execution"""
        sides = _Sides(cost.topology.masks, self.gates)
        self.convs = tuple(_conv_bound(layer, sides) for layer in cost.layers)

    def __call__(self, counts: Sequence[Any]) -> Counts:
        """The most FLOPs of an image; ``counts`` has the open channels of each gate, in shapes that broadcast."""
        return np.asarray(sum(conv.flops(counts) for conv in self.convs), np.int64)

    def code(self) -> list[int]:
        """All numbers of the bound, one after the other, as the native engine reads them."""
        numbers = [len(self.gates), len(self.convs)]
        for conv in self.convs:
            numbers += [conv.positions, conv.taps, conv.most_inputs]
            for side in (conv.inputs, conv.outputs):
                numbers += [side.fixed, side.width, len(side.parts)]
                numbers += [number for part in side.parts for number in (part.gate, part.each, part.most)]
        return numbers


def _conv_bound(layer: Layer, sides: "_Sides") -> ConvBound:
    one = LayerSide(1, 1, ())  # the only input of a channel is live exactly when the channel is
    inputs = one if layer.role == "follows" else sides(layer.inputs)
    most = 1 if layer.role == "follows" else layer.in_channels // layer.groups
    return ConvBound(layer.positions, layer.taps, most, inputs, sides(layer.outputs))


class _Sides:
    """Finds which gates' channels make each channel of a side live."""

    def __init__(self, masks: MaskTable, gates: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(gates)}
        self._sources: list[frozenset[tuple[int, int]]] = [frozenset(), frozenset()]  # LIVE, ZERO
        for block in masks.blocks:
            if isinstance(block, Block):
                pairs = zip(block.left.tolist(), block.right.tolist(), strict=True)
                self._sources += [self._joined(block.kind, left, right) for left, right in pairs]
            else:
                self._sources += [frozenset({(self._places[block], c)}) for c in range(masks.gates[block][1])]

    def _joined(self, kind: str, left: int, right: int) -> frozenset[tuple[int, int]]:
        """The (gate, channel) pairs without which an expression is zero; of a product, those of its shorter factor."""
        first, second = self._sources[left], self._sources[right]
        return first | second if kind == "union" else min(first, second, key=len)

    def __call__(self, which: Tensor) -> LayerSide:
        """The side whose channels have these mask ids (C,)."""
        ids = which.tolist()
        touched: Counter[tuple[int, int]] = Counter()
        reached: Counter[int] = Counter()
        for mask in ids:
            touched.update(self._sources[mask])
            reached.update({gate for gate, _ in self._sources[mask]})
        each: dict[int, int] = {}
        for (gate, _), count in touched.items():
            each[gate] = max(each.get(gate, 0), count)
        parts = tuple(GateReach(gate, each[gate], reached[gate]) for gate in sorted(each))
        return LayerSide(ids.count(LIVE), len(ids) - ids.count(ZERO), parts)
