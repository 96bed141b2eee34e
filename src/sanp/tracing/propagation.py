"""How zero channels travel through a traced network: the columns of every value, filled in the order of execution.

A column is a gate's decision for a sample, so each value also has the sample of each of its rows. Where rows are no
longer those of samples, as after a mean over the batch, nothing is claimed and channels count as live.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from sanp.tracing.graph import ConvolutionCall
from sanp.tracing.masks import LIVE, ZERO, Columns
from sanp.tracing.moves import move, written
from sanp.tracing.operator_call import Step, joined_along
from sanp.tracing.operators import ALONG, CAN_ZERO, MAKES_LIVE, MOVE, REDUCE
from sanp.tracing.tracer import ALIASED, WRITTEN, Node, Trace, Value
from sanp.tracing.zero_rules import RULES, dim_along, reduced_dims

Rows = tuple[int, tuple[int, ...]] | None
"""Which dimension of a value, counted from the last, goes over samples, and the sample at each place along it; None if
the value has no such dimension."""


FEW = 16
"""so many different columns on one map are joined; a channel with more counts as live"""


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
        convolutions = (ConvolutionCall.of(node).input for node in trace.nodes if node.op == "convolution")
        first = next((value for value in convolutions if isinstance(value, Value)), trace.inputs[0])
        self.samples = trace.shapes[first.index][0]
        self._rows: dict[Value, Rows] = {value: self._as_batch(value) for value in trace.inputs}
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
        return self._rows.get(value) is not None and self._rows[value] == self._as_batch(value)

    def _as_batch(self, value: Value) -> Rows:
        """The rows that a value has if its first dimension is the batch."""
        shape = self.trace.shapes[value.index]
        return (-len(shape), tuple(range(self.samples))) if shape[:1] == (self.samples,) else None

    def set_channels(self, value: Value, channels: Tensor) -> None:
        """Says of each channel (dimension 1) of a value which column it has, everywhere on its map."""
        shape = self.trace.shapes[value.index]
        self._of[value] = channels.to(torch.int32).reshape(1, -1, *(1,) * (len(shape) - 2)).expand(shape)

    def channels(self, value: Value, dim: int = 1) -> Tensor:
        """The column of each channel of a value: the union of those on its map, live if these are more than a few."""
        columns = self.of(value)
        others = [other for other in range(columns.dim()) if other != dim]
        single = joined_along(columns, others)
        if single is None:
            each = [row.unique() for row in columns.movedim(dim, 0).flatten(1)]  # as after a pixel shuffle
            few = [row if len(row) <= FEW else row.new_full((1,), LIVE) for row in each]
            most = max(len(row) for row in few)
            padded = torch.stack([torch.cat((row, row[:1].expand(most - len(row)))) for row in few], 1)
            single = padded[0]
            for more in padded[1:]:
                single = self.columns.union(single, more)
        return single.long()

    def is_uneven(self, value: Value) -> bool:
        """Some channel of a map is zero at some positions for other reasons than at others."""
        columns = self.of(value)
        return joined_along(columns, list(range(2, columns.dim()))) is None

    def run(self, node: Node) -> None:
        """Fills in the columns of what a node puts out, by the rule for its operator."""
        self._fill_rows(node)
        name = node.op.removesuffix("_")
        if all(value not in self._of for value in node.inputs()) and name not in CAN_ZERO:
            return  # live in, live out
        made = self._apply(node, name)
        for value, columns in zip(node.outputs, tree_leaves(made) if made is not None else (), strict=False):
            if value is None or not isinstance(columns, Tensor) or columns.shape != self.trace.shapes[value.index]:
                continue
            if self._rows.get(value) is not None:
                self._of[value] = columns
            elif bool((columns != LIVE).any()):
                self.note_unknown(f"{node.op} across samples")

    def _apply(self, node: Node, name: str) -> Any:
        rule = RULES.get(node.op) or RULES.get(name)
        made = None
        if rule is not None:
            try:
                made = rule(self._step(node, self._of_same_rows(node)))
            except (RuntimeError, IndexError, TypeError, ValueError):  # a call that the rule did not foresee
                rule = None
        if rule is None and name not in MAKES_LIVE:
            self.note_unknown(node.op)
        return made

    def note_unknown(self, what: str) -> None:
        """Lists something that makes channels count as live that may not be."""
        self.unknown[what] = self.unknown.get(what, 0) + 1

    def _step(self, node: Node, of: Callable[[Any], Tensor]) -> Step:
        return Step(node, of, self.columns, self.trace.shapes)

    def _of_same_rows(self, node: Node) -> Callable[[Any], Tensor]:
        """As :meth:`of`; where several values are combined, what has other rows than the result counts as live."""
        if len(node.inputs()) == 1 or node.op.removesuffix("_") in MOVE or node.op == WRITTEN:
            return self.of
        rows = self._rows.get(node.outputs[0]) if node.outputs and node.outputs[0] is not None else None

        def of(argument: Any) -> Tensor:
            if not isinstance(argument, Value) or self._rows.get(argument) == rows:
                return self.of(argument)
            if argument in self._of:
                self.note_unknown(f"{node.op} across samples")
            return self.all_live(argument)

        return of

    def _fill_rows(self, node: Node) -> None:
        """Whose rows a node puts out."""
        name = node.op.removesuffix("_")
        for value, rows in zip(node.outputs, self._rows_after(node, name), strict=False):
            if value is not None:
                self._rows[value] = rows
        if self._start in node.outputs and self._start is not None:
            self._rows[self._start] = self._as_batch(self._start)

    def _rows_after(self, node: Node, name: str) -> list[Rows]:
        inputs = [value for value in node.inputs() if self._rows.get(value) is not None]
        if node.op == ALIASED:  # nothing is known of it; most likely it is a batch like any other
            return [self._as_batch(value) if value is not None else None for value in node.outputs]
        if not inputs:
            return [None] * len(node.outputs)
        if name in MOVE or node.op == WRITTEN:
            try:
                made = (move if name in MOVE else written)(self._step(node, self._samples_of))
            except (RuntimeError, IndexError, TypeError, ValueError):
                made = None
            if made is not None:
                return [_rows(samples) for samples in tree_leaves(made)]
        if name in ALONG:
            return [self._unless_along(node, node.args[0])] * len(node.outputs)
        if name in REDUCE and len(node.inputs()) == 1:
            return [self._reduced(node, inputs[0])] * len(node.outputs)
        return [self._common(inputs, value) if value is not None else None for value in node.outputs]

    def _unless_along(self, node: Node, value: Any) -> Rows:
        """The rows of what is reordered along a dimension, which must not be the samples' own."""
        rows, out = self._rows.get(value) if isinstance(value, Value) else None, node.outputs[0]
        if rows is None or out is None:
            return None
        shape = self.trace.shapes[out.index]
        along = dim_along(self._step(node, self.of)) - len(self.trace.shapes[value.index])
        return rows if rows[0] != along and shape[rows[0]] == len(rows[1]) else None

    def _reduced(self, node: Node, value: Value) -> Rows:
        """The rows that are left by a mean, sum, maximum or norm."""
        rows, out = self._rows[value], node.outputs[0]
        assert rows is not None and out is not None
        rank, dims = len(self.trace.shapes[value.index]), reduced_dims(self._step(node, self.of))
        if rank + rows[0] in dims:
            return None
        keep = len(self.trace.shapes[out.index]) == rank
        return rows if keep else (rows[0] + sum(dim > rank + rows[0] for dim in dims), rows[1])

    def _common(self, inputs: list[Value], out: Value) -> Rows:
        """The rows of the inputs that have as many as the output in the same place, if they agree."""
        shape = self.trace.shapes[out.index]
        found = set()
        for value in inputs:
            place, samples = self._rows[value] or (0, ())
            if place == -len(self.trace.shapes[value.index]) and len(inputs) == 1:
                place = -len(shape)  # a batch stays one, whatever becomes of its maps
            if -place <= len(shape) and shape[place] == len(samples):
                found.add((place, samples))
        batch = self._as_batch(out)  # what is added to a batch leaves its rows where they are
        return batch if batch in found else found.pop() if len(found) == 1 else None

    def _samples_of(self, argument: Any) -> Tensor:
        """The sample of each element of a value; -1 for constants, which are nobody's; -2 where it is not known."""
        if not isinstance(argument, Value):
            return torch.full_like(torch.as_tensor(argument).cpu(), -1, dtype=torch.int32)
        shape, rows = self.trace.shapes[argument.index], self._rows.get(argument)
        if rows is None:
            return torch.tensor(-2, dtype=torch.int32).expand(shape)
        return torch.tensor(rows[1], dtype=torch.int32).reshape(-1, *(1,) * (-rows[0] - 1)).expand(shape)


def _rows(samples: Tensor) -> Rows:
    """From the sample of each element to the one dimension along which it changes, if there is only one."""
    if samples.dim() == 0 or samples.numel() == 0:
        return None
    small = samples
    for dim in range(samples.dim()):
        if samples.stride(dim) == 0:
            small = small.narrow(dim, 0, 1)
    if bool((small == -2).any()):
        return None
    changing = [dim for dim in range(small.dim()) if not bool(((small == _highest(small, dim)) | (small == -1)).all())]
    if len(changing) > 1:
        return None
    along = changing[0] if changing else 0
    for dim in range(small.dim()):
        small = small if dim == along else _highest(small, dim)
    each = small.flatten().expand(samples.shape[along]).tolist()
    return None if min(each) < 0 else (along - samples.dim(), tuple(each))


def _highest(samples: Tensor, dim: int) -> Tensor:
    return samples.amax(dim, keepdim=True)
