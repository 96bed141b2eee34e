"""Operators that only move numbers, run on the columns themselves: a view or shuffle needs no rule of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sanp.tracing.graph import Node, Region, Value
from sanp.tracing.masks import LIVE
from sanp.tracing.operator_call import Step


def move(step: Step) -> Any:
    """Runs an operator that only moves numbers on what stands for them."""
    node = step.node
    args, kwargs = list(node.args), dict(node.kwargs)
    name = node.op.removesuffix("_")
    if name in ("index", "index_select", "index_put", "index_copy") and _picked_by_image(node, name):
        return None
    if name == "view" and not isinstance(args[1], list | tuple):
        return None  # the same bits as another type
    if name in ("cat", "stack"):  # constants among the parts have columns too
        args[0] = [step.of(part) for part in args[0]]
    if name in ("slice_scatter", "select_scatter", "index_put", "index_copy"):
        args[0] = step.of(args[0]).clone()
        last = 3 if name == "index_copy" else 2 if name == "index_put" else 1
        args[last] = step.of(args[last])
    args, kwargs = tree_map(lambda leaf: step.of(leaf) if isinstance(leaf, Value) else _here(leaf), (args, kwargs))
    try:
        return node.func(*args, **kwargs)
    except RuntimeError:  # a view that only the real strides allow
        args = tree_map(lambda leaf: leaf.contiguous() if isinstance(leaf, Tensor) else leaf, args)
        return node.func(*args, **kwargs)


def _here(leaf: Any) -> Any:
    """Columns live in the main memory, and so must the indices that pick them."""
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf


def _picked_by_image(node: Node, name: str) -> bool:
    """The indices depend on the input, or what is put there is added."""
    indices = node.args[2] if name in ("index_select", "index_copy") else node.args[1]
    parts = indices if isinstance(indices, list | tuple) else [indices]
    return any(isinstance(part, Value) for part in parts) or (name == "index_put" and len(node.args) > 3)


def written(step: Step) -> Any:
    """A tensor after part of its memory was written through another: its old columns, and there the new ones."""
    region, over = step.node.kwargs["region"], step.node.kwargs["over"]
    memory = torch.full((max(region.end, over.end),), LIVE, dtype=torch.int32)
    for argument, place in zip(step.node.args, (region, over), strict=True):
        _part(memory, place).copy_(step.of(argument))
    return _part(memory, region)


def _part(memory: Tensor, region: Region) -> Tensor:
    return memory.as_strided(region.shape, region.stride, region.offset)
