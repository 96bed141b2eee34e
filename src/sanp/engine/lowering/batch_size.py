"""Traced operators for any batch size: what counts samples in them is found by comparing traces of two sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from sanp.tracing.graph import Node, Value


@dataclass(frozen=True)
class Count:
    """A whole number that depends on the size of the batch: each · batch + rest."""

    each: int
    rest: int

    def at(self, batch: int) -> int:
        """The number for a batch of this size."""
        return self.each * batch + self.rest


@dataclass(frozen=True)
class Tiled:
    """A constant tensor with the same part for every sample, as coordinates that are put beside feature maps."""

    part: Tensor

    def at(self, batch: int) -> Tensor:
        """The constant for a batch of this size."""
        return self.part.repeat(batch, *(1,) * (self.part.dim() - 1))


def for_any_batch(nodes: Sequence[Node], others: Sequence[Node], few: int, more: int) -> dict[int, Node]:
    """Nodes that take any batch size, by identity of the nodes of a trace of ``few`` samples.

    ``others`` are the nodes of a trace of ``more`` samples; a :class:`Count` or :class:`Tiled` stands where the two
    differ. The result is empty if the traces have other operators. What differs in some other way stays as it is, and
    the comparison of the engine with the network finds it.
    """
    if [node.op for node in nodes] != [node.op for node in others]:
        return {}
    return {id(node): _merged(node, other, few, more) for node, other in zip(nodes, others, strict=True)}


def _merged(node: Node, other: Node, few: int, more: int) -> Node:
    leaves, structure = tree_flatten((node.args, node.kwargs))
    others = tree_flatten((other.args, other.kwargs))[0]
    if len(leaves) != len(others):
        return node
    merged = [_leaf(a, b, few, more) for a, b in zip(leaves, others, strict=True)]
    args, kwargs = tree_unflatten(merged, structure)
    return replace(node, args=args, kwargs=kwargs)


def _leaf(a: Any, b: Any, few: int, more: int) -> Any:
    if isinstance(a, Value):
        return a
    if type(a) is int and type(b) is int and a != b:
        each, left = divmod(b - a, more - few)
        return a if left else Count(each, a - each * few)
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.dim() and a.shape != b.shape and len(a) % few == 0:
        tiled = Tiled(a[: len(a) // few])
        return tiled if torch.equal(tiled.at(few), a) and torch.equal(tiled.at(more), b) else a
    return a
