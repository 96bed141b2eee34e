"""Operators that only move elements, such as views and shuffles: they are run on the mask ids themselves."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sanp.tracing.graph import Node, Region, Value
from sanp.tracing.masks import LIVE
from sanp.tracing.operator_call import OperatorCall

_PUT_AT = {"slice_scatter": 1, "select_scatter": 1, "index_put": 2, "index_copy": 3}
"""operators that put values into a copy of their first argument, with the position of the argument that has them"""


def run_on_ids(call: OperatorCall) -> Any:
    """Runs the operator on ids in place of numbers and returns its result.

    None if the operator does more than to move elements, or moves them to places that depend on the network's input.
    """
    node = call.node
    args, kwargs = list(node.args), dict(node.kwargs)
    name = node.base_op
    if name in ("index", "index_select", "index_put", "index_copy") and _picked_by_image(node, name):
        return None
    if name == "view" and not isinstance(args[1], list | tuple):
        return None  # reads the same bits as another dtype
    if name in ("cat", "stack"):  # constants among the parts have mask ids too
        args[0] = [call.of(part) for part in args[0]]
    if name in _PUT_AT:
        args[0] = call.of(args[0]).clone()
        args[_PUT_AT[name]] = call.of(args[_PUT_AT[name]])
    args, kwargs = tree_map(lambda leaf: call.of(leaf) if isinstance(leaf, Value) else _here(leaf), (args, kwargs))
    try:
        return node.func(*args, **kwargs)
    except RuntimeError:  # a view that the strides of the ids do not allow
        args = tree_map(lambda leaf: leaf.contiguous() if isinstance(leaf, Tensor) else leaf, args)
        return node.func(*args, **kwargs)


def _here(leaf: Any) -> Any:
    """The leaf on the CPU if it is a tensor: mask ids are on the CPU, so indices into them must be there too."""
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf


def _picked_by_image(node: Node, name: str) -> bool:
    """Whether the indices depend on the network's input, or the values are added instead of put."""
    indices = node.args[2] if name in ("index_select", "index_copy") else node.args[1]
    parts = indices if isinstance(indices, list | tuple) else [indices]
    return any(isinstance(part, Value) for part in parts) or (name == "index_put" and len(node.args) > 3)


def written(call: OperatorCall) -> Any:
    """The ids of a tensor after a write to part of its memory: the old ones, and the new ones where it was written."""
    region, over = call.node.kwargs["region"], call.node.kwargs["over"]
    memory = torch.full((max(region.end, over.end),), LIVE, dtype=torch.int32)
    for argument, place in zip(call.node.args, (region, over), strict=True):
        _part(memory, place).copy_(call.of(argument))
    return _part(memory, region)


def _part(memory: Tensor, region: Region) -> Tensor:
    return memory.as_strided(region.shape, region.stride, region.offset)
