"""How zero channels travel through a traced network: the columns of every value, filled in the order of execution.

A column is a gate's decision for a sample, so each value also has the sample of each of its rows. Where rows are no
longer those of samples, as after a mean over the batch, nothing is claimed and channels count as live.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from sanp.liveness import LIVE, ZERO, Columns
from sanp.rules import (
    CAN_ZERO,
    KEEP_ZERO,
    MAKES_LIVE,
    MOVE,
    POOL,
    REDUCE,
    RULES,
    Step,
    constant_along,
    joined_along,
    move,
    reduced_dims,
    written,
)
from sanp.trace import ALIASED, WRITTEN, Node, Trace, Value

__all__ = ["KEEP_ZERO", "POOL", "Propagation", "Rows", "constant_along"]

Rows = tuple[int, ...] | None
"""The sample of each row (dimension 0) of a value; None if some row is not one sample's."""


class Propagation:
    """The columns of every value of a trace, filled node by node.

    A sample is a row of the first convolution: a network that folds something else into the batch, such as the frames
    of a video, is counted by frame.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.columns = Columns()
        self.unknown: dict[str, int] = {}
        self._of: dict[Value, Tensor] = {}
        convolutions = (node.args[0] for node in trace.nodes if node.op == "convolution")
        first = next((value for value in convolutions if isinstance(value, Value)), trace.inputs[0])
        self.samples = trace.shapes[first.index][0]
        everyone = tuple(range(self.samples))
        self._rows: dict[Value, Rows] = {
            value: everyone for value in trace.inputs if trace.shapes[value.index][:1] == (self.samples,)
        }
        self._start = first if self._rows.get(first) is None else None
        """what the first convolution reads, where it is not an input itself"""

    def of(self, argument: Any) -> Tensor:
        """The columns of a value, or of a constant: live where it is not zero, or may not be after training."""
        if isinstance(argument, Value):
            return self._of.get(argument, self.all_live(argument))
        constant = torch.as_tensor(argument).cpu()
        if id(argument) in self.trace.learned:
            return torch.tensor(LIVE, dtype=torch.int32).expand(constant.shape)
        return torch.where(constant == 0, ZERO, LIVE).to(torch.int32)

    def all_live(self, value: Value) -> Tensor:
        """Columns that are always live, in the value's shape."""
        return torch.tensor(LIVE, dtype=torch.int32).expand(self.trace.shapes[value.index])

    def by_sample(self, value: Value) -> bool:
        """Each sample has one row of its own, in order."""
        return self._rows.get(value) == tuple(range(self.samples))

    def set_channels(self, value: Value, channels: Tensor) -> None:
        """Says of each channel (dimension 1) of a value which column it has, everywhere on its map."""
        shape = self.trace.shapes[value.index]
        self._of[value] = channels.to(torch.int32).reshape(1, -1, *(1,) * (len(shape) - 2)).expand(shape)

    def channels(self, value: Value, dim: int = 1) -> Tensor:
        """The column of each channel of a value; live where a channel is not one thing all over its map."""
        columns = self.of(value)
        others = [other for other in range(columns.dim()) if other != dim]
        single = joined_along(columns, others)
        if single is None:
            each = columns.movedim(dim, 0).flatten(1)  # (C, everything else)
            head = each.amax(1, keepdim=True)
            same = ((each == head) | (each == ZERO)).all(1)
            single = torch.where(same, head[:, 0], LIVE)
        return single.long()

    def run(self, node: Node) -> None:
        """Fills in the columns of what a node puts out, by the rule for its operator."""
        self._fill_rows(node)
        name = node.op.removesuffix("_")
        if all(value not in self._of for value in node.inputs()) and name not in CAN_ZERO:
            return  # live in, live out
        made = self._apply(node, name)
        for value, columns in zip(node.outputs, tree_leaves(made) if made is not None else (), strict=False):
            fits = value is not None and isinstance(columns, Tensor) and columns.shape == self.trace.shapes[value.index]
            if fits and self._rows.get(value) is not None:  # type: ignore[arg-type]
                self._of[value] = columns  # type: ignore[index]

    def _apply(self, node: Node, name: str) -> Any:
        rule = RULES.get(node.op) or RULES.get(name)
        made = None
        if rule is not None:
            try:
                made = rule(
                    self._step(node, self.of if name in MOVE or node.op == WRITTEN else self._of_same_rows(node))
                )
            except (RuntimeError, IndexError, TypeError, ValueError):  # a call that the rule did not foresee
                rule = None
        if rule is None and name not in MAKES_LIVE:
            self.unknown[node.op] = self.unknown.get(node.op, 0) + 1
        return made

    def _step(self, node: Node, of: Callable[[Any], Tensor]) -> Step:
        return Step(node, of, self.columns, self.trace.shapes)

    def _of_same_rows(self, node: Node) -> Callable[[Any], Tensor]:
        """As :meth:`of`, but what has other rows than the node's output counts as live: it may be other samples'."""
        rows = self._rows.get(node.outputs[0]) if node.outputs and node.outputs[0] is not None else None

        def of(argument: Any) -> Tensor:
            other = isinstance(argument, Value) and self._rows.get(argument) != rows
            return self.all_live(argument) if other else self.of(argument)

        return of

    def _fill_rows(self, node: Node) -> None:
        """Whose rows a node puts out."""
        name = node.op.removesuffix("_")
        for value, rows in zip(node.outputs, self._rows_after(node, name), strict=False):
            if value is not None:
                self._rows[value] = rows
        if self._start in node.outputs and self._start is not None:
            self._rows[self._start] = tuple(range(self.samples))

    def _rows_after(self, node: Node, name: str) -> list[Rows]:
        inputs = [value for value in node.inputs() if self._rows.get(value) is not None]
        shapes = [self.trace.shapes[value.index] if value is not None else () for value in node.outputs]
        if node.op == ALIASED:  # nothing is known of it; most likely it is a batch like any other
            return [tuple(range(self.samples)) if shape[:1] == (self.samples,) else None for shape in shapes]
        if not inputs:
            return [None] * len(shapes)
        if name in MOVE or node.op == WRITTEN:
            try:
                made = (move if name in MOVE else written)(self._step(node, self._samples_of))
            except (RuntimeError, IndexError, TypeError, ValueError):
                made = None
            if made is not None:
                return [_rows(samples) for samples in tree_leaves(made)]
        if name in REDUCE and len(node.inputs()) == 1 and 0 in reduced_dims(self._step(node, self.of)):
            return [None] * len(shapes)
        return [self._common(inputs, shape) for shape in shapes]

    def _common(self, inputs: list[Value], shape: Any) -> Rows:
        """The rows of all inputs that have as many as the output, if they agree."""
        rows = {self._rows[value] for value in inputs if self.trace.shapes[value.index][:1] == shape[:1] != ()}
        return rows.pop() if len(rows) == 1 else None

    def _samples_of(self, argument: Any) -> Tensor:
        """The sample of each element of a value; -1 for constants, which are nobody's; -2 where it is not known."""
        if not isinstance(argument, Value):
            return torch.full_like(torch.as_tensor(argument).cpu(), -1, dtype=torch.int32)
        shape, rows = self.trace.shapes[argument.index], self._rows.get(argument)
        samples = torch.tensor(-2 if rows is None else rows, dtype=torch.int32)
        return (samples if rows is None else samples.reshape(-1, *(1,) * (len(shape) - 1))).expand(shape)


def _rows(samples: Tensor) -> Rows:
    """From the sample of each element to that of each row."""
    if samples.dim() == 0:
        return None
    for dim in range(1, samples.dim()):
        if samples.stride(dim) == 0 and samples.shape[dim] > 1:
            samples = samples.narrow(dim, 0, 1)
    each = samples.reshape(len(samples), -1)
    if each.numel() == 0 or bool((each == -2).any()):
        return None
    highest = each.amax(1)
    same = bool(((each == highest[:, None]) | (each == -1)).all())
    return tuple(highest.tolist()) if same and bool((highest >= 0).all()) else None
