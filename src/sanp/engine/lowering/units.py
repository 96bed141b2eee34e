"""What the engine writes one at a time: an operator of the trace, or a whole gated convolution."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.tracing.graph import Node, Trace, Value


@dataclass(frozen=True)
class Unit:
    """Some nodes that are written together."""

    index: int
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    module: nn.Module | None
    """the gated convolution that they make up; None for a single operator"""
    name: str
    """path of the module that ran it, and for a single operator its name"""

    @property
    def node(self) -> Node:
        """The only node, of a unit that is one operator."""
        return self.nodes[0]


def units_of(trace: Trace) -> list[Unit]:
    """Every unit of a trace that the outputs depend on, in order of execution."""
    return _needed(trace, list(_all_units(trace)))


def _all_units(trace: Trace) -> Sequence[Unit]:
    starts = {
        call.first_node: call
        for call in reversed(trace.calls)
        if isinstance(call.module, GatedConv | FollowingConv) and len(call.inputs) == 1 and len(call.outputs) == 1
    }
    units: list[Unit] = []
    at = 0
    while at < len(trace.nodes):
        call = starts.get(at)
        if call is not None and call.end_node > at:
            nodes = tuple(trace.nodes[at : call.end_node])
            units.append(Unit(len(units), nodes, call.inputs, call.outputs, call.module, call.path))
            at = call.end_node
            continue
        node = trace.nodes[at]
        outputs = tuple(value for value in node.outputs if value is not None)
        name = f"{trace.calls[node.call].path or 'forward'}: {node.op}"
        units.append(Unit(len(units), (node,), tuple(dict.fromkeys(node.inputs())), outputs, None, name))
        at += 1
    return units


def _needed(trace: Trace, units: Sequence[Unit]) -> list[Unit]:
    wanted = set(trace.outputs)
    kept: list[Unit] = []
    for unit in reversed(units):
        if wanted.intersection(unit.outputs):
            kept.append(unit)
            wanted.update(unit.inputs)
    return kept[::-1]
