"""Operators that only move elements: each is run on the indices of the elements, which shows where every one goes."""

import math

import torch

from sanp.engine.lowering.known import Moved
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value

_KEEP_ORDER = ("view", "_unsafe_view", "reshape", "expand", "clone", "contiguous", "alias", "detach")
"""moves that keep the elements in their order"""
IN_FLOATS = ("reflection_pad2d", "reflection_pad1d", "replication_pad2d", "upsample_nearest2d", "pixel_shuffle")
"""moves that torch has for numbers with a fraction alone"""


def move(low: Lowering, node: Node) -> None:
    """Runs an operator that only moves numbers on the numbers of the elements of a batch, from 1: 0 is a zero."""
    source = node.inputs()[0]
    if _move_last(low, node, source):
        return
    moved = low.moved(source)
    batch, each = low.shape(source)[0], math.prod(low.writer.shapes[moved.base]) + 1
    numbers = moved.index + 1 + torch.arange(batch).reshape(-1, *(1,) * moved.index.dim()) * each
    given = numbers.double() if node.op in IN_FLOATS else numbers
    made = node.func(*(given if argument == source else argument for argument in node.args), **node.kwargs)
    results = made if isinstance(made, list | tuple) else [made]
    for value, result in zip(node.outputs, results, strict=True):
        apart = result.long() - torch.arange(len(result)).reshape(-1, *(1,) * (result.dim() - 1)) * each
        if len(result) != batch or not torch.equal(apart, apart[:1].expand_as(apart)) or int(apart.min()) < 0:
            raise Unsupported(f"{node.op} mixes the samples of a batch")
        low.define(value, Moved(moved.base, apart[0] - 1))


def _move_last(low: Lowering, node: Node, source: Value) -> bool:
    """Whether a move leaves the channels of a map last, in rows by pixel too, or takes them first again."""
    last, out = low.channels_last(source), node.outputs[0]
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
