"""Groups of operators that are one thing: an instance norm written as a batch norm, a stack that is summed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sanp.engine.lowering.units import Unit
from sanp.tracing.graph import Node, Trace, Value

INSTANCE_NORM, TOTAL = "instance_norm", "sum_of_values"
"""names of the operators that stand for the groups"""
_VIEWS = ("view", "_unsafe_view", "reshape")


def with_patterns(trace: Trace, units: Sequence[Unit]) -> list[Unit]:
    """The units of a trace, where each group is one unit at the place of its last; inside a gated module, one node."""
    readers = Counter(value for node in trace.nodes for value in dict.fromkeys(node.inputs()))
    readers.update(trace.outputs)
    makers = {value: node for node in trace.nodes for value in node.outputs if value is not None}
    found: list[Unit] = []
    taken: set[Value] = set()
    for unit in reversed(units):
        nodes: list[Node] = []
        for node in reversed(unit.nodes):
            if any(value in taken for value in node.outputs if value is not None):
                continue
            match = _instance_norm(trace, node, makers, readers) or _total(node, makers, readers)
            if match is not None:
                taken.update(match[1])
            nodes.append(node if match is None else match[0])
        if not nodes:
            continue
        inputs = unit.inputs if unit.module is not None else tuple(dict.fromkeys(nodes[0].inputs()))
        found.append(replace(unit, nodes=tuple(nodes[::-1]), inputs=inputs))
    return found[::-1]


def _inner(value: Any, makers: dict[Value, Node], readers: Counter[Value]) -> Node | None:
    """The operator that makes a value which nothing else reads."""
    return makers.get(value) if isinstance(value, Value) and readers[value] == 1 else None


def _instance_norm(
    trace: Trace, node: Node, makers: dict[Value, Node], readers: Counter[Value]
) -> tuple[Node, list[Value]] | None:
    """(N, C, ...) seen as one sample of N · C channels, normalised by the statistics of the batch, and seen back."""
    norm = _inner(node.args[0], makers, readers) if node.op in _VIEWS else None
    if norm is None or norm.op != "native_batch_norm" or not norm.args[5]:
        return None
    before = _inner(norm.args[0], makers, readers)
    if before is None or before.op not in _VIEWS or not isinstance(before.args[0], Value) or node.outputs[0] is None:
        return None
    x = before.args[0]
    shape, seen = trace.shapes[x.index], trace.shapes[norm.args[0].index]
    if seen != (1, shape[0] * shape[1], *shape[2:]) or trace.shapes[node.outputs[0].index] != shape:
        return None
    constants = [_of_one_sample(each, shape) for each in norm.args[1:3]]
    made = replace(node, op=INSTANCE_NORM, args=(x, *constants, norm.args[-1]), kwargs={}, func=_run_instance_norm)
    return made, [value for each in (norm, before) for value in each.outputs if value is not None]


def _of_one_sample(constant: Tensor | None, shape: torch.Size) -> Tensor | None:
    return None if constant is None else constant[: shape[1]]


def _run_instance_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    return F.instance_norm(x, weight=weight, bias=bias, eps=eps)


def _total(node: Node, makers: dict[Value, Node], readers: Counter[Value]) -> tuple[Node, list[Value]] | None:
    """A stack along a dimension of which the sum or the mean is taken over that dimension."""
    stack = _inner(node.args[0], makers, readers) if node.base_op in ("sum", "mean") and node.args else None
    if stack is None or stack.op != "stack" or node.argument(2, "keepdim", False) or node.kwargs.get("dtype"):
        return None
    parts, over = stack.args[0], node.argument(1, "dim", None)
    if not all(isinstance(part, Value) for part in parts) or over is None or stack.outputs[0] is None:
        return None
    over = [over] if isinstance(over, int) else list(over)
    if over != [stack.argument(1, "dim", 0)]:
        return None
    count = len(parts) if node.base_op == "mean" else 1
    made = replace(node, op=TOTAL, args=(parts, count), kwargs={}, func=_run_total)
    return made, [stack.outputs[0]]


def _run_total(parts: list[Tensor], count: int) -> Tensor:
    return torch.stack(parts).sum(0) / count
