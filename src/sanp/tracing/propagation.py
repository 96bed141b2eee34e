"""Follows zero channels through a trace: finds the mask id of every element, node by node in order of execution."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from sanp.tracing.graph import WRITTEN, Node, Trace, Value
from sanp.tracing.masks import LIVE, ZERO, MaskTable
from sanp.tracing.operator_call import OperatorCall, joined_along
from sanp.tracing.operators import CAN_ZERO, MAKES_LIVE, MOVE
from sanp.tracing.sample_dims import SampleDims
from sanp.tracing.zero_rules import ZERO_RULES

FEW = 16
"""a channel whose positions have more different masks than this counts as live; up to this many are joined by OR"""


class Propagation:
    """The mask ids of all elements of all values of a trace; :meth:`run` fills them in, node by node."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.masks = MaskTable()
        self.sample_dims = SampleDims(trace)
        self.unknown: dict[str, int] = {}
        """operators after which channels count as live although they may be zero, and how often each was met"""
        self._of: dict[Value, Tensor] = {}

    def of(self, argument: Any) -> Tensor:
        """The mask id of each element of a value or a constant.

        An element of a constant is always zero if it is 0 and not learned, otherwise live.
        """
        if isinstance(argument, Value):
            return self._of.get(argument, self.all_live(argument))
        constant = torch.as_tensor(argument).cpu()
        if id(argument) in self.trace.learned:
            return torch.tensor(LIVE, dtype=torch.int32).expand(constant.shape)
        return torch.where(constant == 0, ZERO, LIVE).to(torch.int32)

    def all_live(self, value: Value) -> Tensor:
        """The id LIVE for each element of a value."""
        return torch.tensor(LIVE, dtype=torch.int32).expand(self.trace.shapes[value.index])

    def set_channels(self, value: Value, channels: Tensor) -> None:
        """Sets the mask ids of a value; ``channels`` holds one for each channel (dimension 1), at all its positions."""
        shape = self.trace.shapes[value.index]
        self._of[value] = channels.to(torch.int32).reshape(1, -1, *(1,) * (len(shape) - 2)).expand(shape)

    def channels(self, value: Value, dim: int = 1) -> Tensor:
        """The mask id of each entry of a value along ``dim``, the channels.

        Where the positions of a channel have different masks, this is their union, or LIVE if they are more than
        ``FEW``.
        """
        masks = self.of(value)
        others = [other for other in range(masks.dim()) if other != dim]
        single = joined_along(masks, others)
        if single is None:
            each = [row.unique() for row in masks.movedim(dim, 0).flatten(1)]  # for example after a pixel shuffle
            few = [row if len(row) <= FEW else row.new_full((1,), LIVE) for row in each]
            most = max(len(row) for row in few)
            padded = torch.stack([torch.cat((row, row[:1].expand(most - len(row)))) for row in few], 1)
            single = padded[0]
            for more in padded[1:]:
                single = self.masks.union(single, more)
        return single.long()

    def is_uneven(self, value: Value) -> bool:
        """Whether the positions of some channel have different masks."""
        masks = self.of(value)
        return joined_along(masks, list(range(2, masks.dim()))) is None

    def run(self, node: Node) -> None:
        """Fills in the mask ids of a node's outputs, by the rule for its operator."""
        self.sample_dims.follow(node)
        if all(value not in self._of for value in node.inputs()) and node.base_op not in CAN_ZERO:
            return  # all inputs are live, so the outputs are too
        made = self._apply(node)
        for value, masks in zip(node.outputs, tree_leaves(made) if made is not None else (), strict=False):
            if value is None or not isinstance(masks, Tensor) or masks.shape != self.trace.shapes[value.index]:
                continue
            if self.sample_dims[value] is not None:
                self._of[value] = masks
            elif bool((masks != LIVE).any()):
                self.note_unknown(f"{node.op} across samples")

    def _apply(self, node: Node) -> Any:
        rule = ZERO_RULES.get(node.op) or ZERO_RULES.get(node.base_op)
        made = None
        if rule is not None:
            try:
                made = rule(OperatorCall(node, self._of_same_samples(node), self.masks, self.trace.shapes))
            except (RuntimeError, IndexError, TypeError, ValueError):  # a kind of call that the rule does not handle
                rule = None
        if rule is None and node.base_op not in MAKES_LIVE:
            self.note_unknown(node.op)
        return made

    def note_unknown(self, what: str) -> None:
        """Counts an operator after which channels count as live although they may be zero."""
        self.unknown[what] = self.unknown.get(what, 0) + 1

    def _of_same_samples(self, node: Node) -> Callable[[Any], Tensor]:
        """As :meth:`of`, but an argument counts as live if its sample dimension is not that of the node's output."""
        if len(node.inputs()) == 1 or node.base_op in MOVE or node.op == WRITTEN:
            return self.of
        out = node.outputs[0] if node.outputs else None
        wanted = self.sample_dims[out] if out is not None else None

        def of(argument: Any) -> Tensor:
            if not isinstance(argument, Value) or self.sample_dims[argument] == wanted:
                return self.of(argument)
            if argument in self._of:
                self.note_unknown(f"{node.op} across samples")
            return self.all_live(argument)

        return of
