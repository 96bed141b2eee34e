"""Activations that a network spells out: x · sigmoid(x) in two operators becomes silu, and the hard forms theirs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from sanp.engine.lowering.elementwise import activation_of
from sanp.engine.lowering.units import Unit
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Trace, Value

_OPERATORS = {
    "silu": torch.ops.aten.silu.default,
    "hardswish": torch.ops.aten.hardswish.default,
    "hardsigmoid": torch.ops.aten.hardsigmoid.default,
    "mish": torch.ops.aten.mish.default,
}


def with_activations(trace: Trace, units: Sequence[Unit]) -> list[Unit]:
    """The units of a trace, where every group that spells out an activation is one unit, at the place of its last.

    What else reads something in the middle of a group keeps it as it is.
    """
    return _Finder(trace, units).units()


class _Finder:
    """Finds the groups, the last operator of each first."""

    def __init__(self, trace: Trace, units: Sequence[Unit]) -> None:
        self._units = list(units)
        self._makers: dict[Value, Node] = {
            unit.outputs[0]: unit.node for unit in units if unit.module is None and len(unit.outputs) == 1
        }
        self._readers = Counter(value for node in trace.nodes for value in dict.fromkeys(node.inputs()))
        self._readers.update(trace.outputs)

    def units(self) -> list[Unit]:
        found: dict[int, Unit] = {}
        taken: set[Value] = set()
        for unit in reversed(self._units):
            if unit.module is not None or taken.intersection(unit.outputs):
                continue
            match = self._match(unit.node)
            if match is not None:
                name, x, inside = match
                taken.update(inside)
                node = replace(unit.node, op=name, args=(x,), kwargs={}, func=_OPERATORS[name])
                found[unit.index] = replace(unit, nodes=(node,), inputs=(x,))
        return [found.get(unit.index, unit) for unit in self._units if not taken.intersection(unit.outputs)]

    def _match(self, node: Node) -> tuple[str, Value, list[Value]] | None:
        """The activation that ends in a node, what it is of, and the values in the middle; None if there is none."""
        sixth = self._without_factor(node, 1 / 6)
        if sixth is not None:
            shifted = self._clipped(sixth)
            if shifted is not None:
                return "hardsigmoid", shifted[0], [sixth, *shifted[1]]
            product = self._product(self._maker(sixth))
            if product is not None and product[0] == "clip":
                return "hardswish", product[1], [sixth, *product[2]]
        product = self._product(node)
        if product is not None and product[0] != "clip":
            return product
        return None

    def _product(self, node: Node | None) -> tuple[str, Value, list[Value]] | None:
        """x times a function of x: a sigmoid, a hard one, or six times that (``clip``)."""
        if node is None or node.base_op != "mul" or len(node.inputs()) != 2:
            return None
        for x, other in (node.args[:2], node.args[1::-1]):
            maker = self._maker(other)
            if maker is None or not isinstance(x, Value):
                continue
            if maker.base_op == "sigmoid" and maker.args[0] == x:
                return "silu", x, [other]
            soft = self._maker(maker.args[0]) if maker.base_op == "tanh" else None
            if soft is not None and soft.op == "softplus" and soft.args[0] == x and _is_plain_softplus(soft):
                return "mish", x, [other, maker.args[0]]
            if maker.base_op == "hardsigmoid" and maker.args[0] == x:
                return "hardswish", x, [other]
            shifted, sixth = self._clipped(other), self._without_factor(maker, 1 / 6)
            if shifted is not None and shifted[0] == x:
                return "clip", x, [other, *shifted[1]]
            inner = self._clipped(sixth) if sixth is not None else None
            if sixth is not None and inner is not None and inner[0] == x:
                return "hardswish", x, [other, sixth, *inner[1]]
        return None

    def _clipped(self, value: Value) -> tuple[Value, list[Value]] | None:
        """x and the value in between, if the value is x + 3 between 0 and 6."""
        clip = self._maker(value)
        if clip is None or clip.base_op not in ("hardtanh", "relu6", "clamp"):
            return None
        try:
            act = activation_of(clip, 1)
        except Unsupported:
            return None
        added = self._maker(clip.args[0])
        if (act.a, act.b) != (0, 6) or added is None or added.base_op != "add" or added.kwargs.get("alpha", 1) != 1:
            return None
        x, three = _with_number(added)
        return (x, [clip.args[0]]) if x is not None and three == 3 else None

    def _without_factor(self, node: Node, factor: float) -> Value | None:
        """The value that a node multiplies by a number, or divides by its inverse."""
        if node.base_op not in ("mul", "div") or node.kwargs:
            return None
        value, number = _with_number(node)
        if value is None or (node.base_op == "div" and not isinstance(node.args[0], Value)):
            return None
        given = number if node.base_op == "mul" else 1 / number if number else 0
        return value if abs(given - factor) < 1e-7 and self._maker(value) is not None else None

    def _maker(self, value: Any) -> Node | None:
        """The single operator that makes a value which nothing else reads."""
        return self._makers.get(value) if isinstance(value, Value) and self._readers[value] == 1 else None


def _is_plain_softplus(node: Node) -> bool:
    """Whether it is log(1 + e^x), beyond a threshold x: there the hyperbolic tangent of both is 1."""
    return bool(node.argument(1, "beta", 1) == 1 and node.argument(2, "threshold", 20) >= 20)


def _with_number(node: Node) -> tuple[Value | None, float]:
    """A value and a plain number, of an operator of the two; (None, 0) for any other."""
    for value, number in (node.args[:2], node.args[1::-1]):
        if isinstance(value, Value) and isinstance(number, torch.Tensor) and number.numel() == 1:
            number = number.item()
        if isinstance(value, Value) and isinstance(number, int | float):
            return value, float(number)
    return None, 0.0
