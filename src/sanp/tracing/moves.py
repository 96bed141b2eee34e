"""Operators that only move numbers, run on the masks themselves: a view or shuffle needs no rule of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sanp.tracing.graph import Node, Region, Value
from sanp.tracing.masks import LIVE
from sanp.tracing.operator_call import OperatorCall


def move(call: OperatorCall) -> Any:
    """Runs an operator that only moves numbers on what stands for them."""
    node = call.node
    args, kwargs = list(node.args), dict(node.kwargs)
    name = node.base_op
    if name in ("index", "index_select", "index_put", "index_copy") and _picked_by_image(node, name):
        return None
    if name == "view" and not isinstance(args[1], list | tuple):
        return None  # the same bits as another type
    if name in ("cat", "stack"):  # constants among the parts have masks too
        args[0] = [call.of(part) for part in args[0]]
    if name in ("slice_scatter", "select_scatter", "index_put", "index_copy"):
        args[0] = call.of(args[0]).clone()
        last = 3 if name == "index_copy" else 2 if name == "index_put" else 1
        args[last] = call.of(args[last])
    args, kwargs = tree_map(lambda leaf: call.of(leaf) if isinstance(leaf, Value) else _here(leaf), (args, kwargs))
    try:
        return node.func(*args, **kwargs)
    except RuntimeError:  # a view that only the real strides allow
        args = tree_map(lambda leaf: leaf.contiguous() if isinstance(leaf, Tensor) else leaf, args)
        return node.func(*args, **kwargs)


def _here(leaf: Any) -> Any:
    """Mask ids are kept on the CPU, so the indices that pick them must be there too."""
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf


def _picked_by_image(node: Node, name: str) -> bool:
    """The indices depend on the input, or what is put there is added."""
    indices = node.args[2] if name in ("index_select", "index_copy") else node.args[1]
    parts = indices if isinstance(indices, list | tuple) else [indices]
    return any(isinstance(part, Value) for part in parts) or (name == "index_put" and len(node.args) > 3)


def written(call: OperatorCall) -> Any:
    """A tensor after part of its memory was written through another: its old masks, and there the new ones."""
    region, over = call.node.kwargs["region"], call.node.kwargs["over"]
    memory = torch.full((max(region.end, over.end),), LIVE, dtype=torch.int32)
    for argument, place in zip(call.node.args, (region, over), strict=True):
        _part(memory, place).copy_(call.of(argument))
    return _part(memory, region)


def _part(memory: Tensor, region: Region) -> Tensor:
    return memory.as_strided(region.shape, region.stride, region.offset)
