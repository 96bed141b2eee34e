"""Operators that only move elements: each is run on the indices of the elements, which shows where every one goes."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sanp.engine.lowering.known import NOT_KNOWN, ChannelsLast, Moved
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value

_KEEP_ORDER = ("view", "_unsafe_view", "reshape", "expand", "clone", "contiguous", "alias", "detach")
"""moves that keep the elements in their order"""
IN_FLOATS = (
    "reflection_pad2d", "reflection_pad1d", "replication_pad2d", "replication_pad1d", "upsample_nearest2d",
    "upsample_nearest1d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "pixel_shuffle", "im2col",
)  # fmt: skip
"""moves that torch has for numbers with a fraction alone"""


@dataclass(frozen=True)
class Numbering:
    """Numbers for the elements of a batch, from 1 for each sample; 0 is a zero, the last one what is not known."""

    batch: int
    elements: int
    """of one sample"""

    @property
    def each(self) -> int:
        """How many numbers a sample has."""
        return self.elements + 2

    def of_batch(self, index: Tensor) -> Tensor:
        """The numbers of a batch whose samples have the elements of :class:`Moved`."""
        own = torch.where(index == NOT_KNOWN, self.elements + 1, index + 1)
        return own + self._starts(index.dim() + 1)

    def of_sample(self, numbers: Tensor, op: str) -> Tensor:
        """The elements of one sample; raises unless every sample has the same. ``op`` has moved the numbers."""
        own = numbers - self._starts(numbers.dim()) if len(numbers) == self.batch else numbers[:0]
        own = torch.where(numbers == 0, 0, own) if len(own) else own  # a zero that the operator has put there
        inside = own.numel() > 0 and int(own.min()) >= 0 and int(own.max()) < self.each
        if not inside or not torch.equal(own, own[:1].expand_as(own)):
            raise Unsupported(f"{op} mixes the samples of a batch")
        return torch.where(own[0] == self.elements + 1, NOT_KNOWN, own[0] - 1)

    def _starts(self, dims: int) -> Tensor:
        return torch.arange(self.batch).reshape(-1, *(1,) * (dims - 1)) * self.each


def move(low: Lowering, node: Node) -> None:
    """Runs an operator that only moves numbers on the numbers of the elements of a batch."""
    source = node.inputs()[0]
    if _move_last(low, node, source):
        return
    moved = low.moved(source)
    numbering = Numbering(low.shape(source)[0], math.prod(low.writer.shapes[moved.base]))
    numbers = numbering.of_batch(moved.index)
    given = numbers.double() if node.op in IN_FLOATS else numbers
    made = _run(node, source, given)
    results = made if isinstance(made, list | tuple) else [made]
    for value, result in zip(node.outputs, results, strict=True):
        low.define(value, Moved(moved.base, numbering.of_sample(result.long(), node.op)))


def _run(node: Node, source: Value, given: Tensor) -> Any:
    """Runs a move on numbers in place of its source."""
    func: Any = torch.reshape if node.op == "view" and isinstance(node.args[1], list | tuple) else node.func
    try:  # as a reshaping: the numbers lie in memory otherwise than what was traced
        return func(*(given if argument == source else argument for argument in node.args), **node.kwargs)
    except RuntimeError as error:
        raise Unsupported(f"{node.op} that does not run on the numbers of its elements") from error


def _move_last(low: Lowering, node: Node, source: Value) -> bool:
    """Whether a move leaves the channels of a map last, in rows by pixel too, or takes them first again."""
    last, out = low.channels_last(source), node.outputs[0]
    if last is None and out is not None and node.op == "permute" and list(node.args[1]) == [0, 2, 3, 1]:
        waiting = low.pending(source)
        if waiting is None or waiting.act is not None or waiting.spread is not None:
            return False
        low.define(out, ChannelsLast(waiting))  # it can still take in what follows
        return True
    if last is None or out is None:
        return False
    before, after = low.shape(source), low.shape(out)
    if node.op == "permute" and len(before) == 4 and list(node.args[1]) == [0, 3, 1, 2]:
        low.define(out, last.inner)
        return True
    if node.op in _KEEP_ORDER and after[-1] == before[-1] and after.numel() == before.numel():
        low.define(out, last)
        return True
    return False
