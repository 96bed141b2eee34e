"""What a trace holds: operator calls in order, the module calls around them, and values that stand for tensors."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

ALIASED = "aliased"
"""The operator name of a value that came about unseen, as by way of NumPy: nothing is known of it."""
WRITTEN = "written"
"""The operator name of a value that was written through another tensor over the same memory: (before, what was
written), with the :class:`Region` of both as ``region`` and ``over``."""


@dataclass(frozen=True)
class Value:
    """A tensor of the forward that depends on the network's input, named by a number."""

    index: int


@dataclass(frozen=True)
class Region:
    """Where in its memory a tensor lies."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        """The first place behind it."""
        return self.offset + 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))


@dataclass(frozen=True)
class Node:
    """One operator call: where arguments depend on the input, a :class:`Value` stands in for the tensor."""

    op: str
    call: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Value | None, ...]
    func: Any = field(repr=False)

    @property
    def base_op(self) -> str:
        """The operator's name without the underscore of its in-place form."""
        return self.op.removesuffix("_")

    def inputs(self) -> list[Value]:
        """The values among the arguments."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Value)]


@dataclass(frozen=True)
class ConvolutionCall:
    """The arguments of one ``aten.convolution``, in torch's order."""

    input: Any
    """a tensor, or a :class:`Value` where it depends on the network's input; so are the next two"""
    weight: Any
    bias: Any
    """None without one"""
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    @classmethod
    def of(cls, node: Node) -> "ConvolutionCall":
        """The arguments of a traced convolution."""
        return cls(*node.args, **node.kwargs)


@dataclass
class ModuleCall:
    """One call of one module: what went in, what came out, which nodes ran directly or deeper inside it."""

    path: str
    module: nn.Module
    parent: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...] = ()
    first_node: int = 0
    end_node: int = 0
    is_plain: bool = False
    """a tensor was its first argument and a tensor is what it gave back"""


@dataclass
class Trace:
    """One forward: nodes in order of execution, the module calls around them, and every value's shape."""

    nodes: list[Node] = field(default_factory=list)
    calls: list[ModuleCall] = field(default_factory=list)
    shapes: list[torch.Size] = field(default_factory=list)
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    result: Any = field(default=None, repr=False)
    """what the network returned"""
    learned: set[int] = field(default_factory=set, repr=False)
    """identities of the tensors that are parameters or buffers, or computed from such: their numbers may change"""

    def consumers(self) -> dict[Value, list[int]]:
        """The nodes that read each value."""
        found: dict[Value, list[int]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            for value in dict.fromkeys(node.inputs()):
                found[value].append(index)
        return found
