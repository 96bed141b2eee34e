"""The data of a trace: operator calls in order, the module calls around them, and values that stand for tensors."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

ALIASED = "aliased"
"""The operator name of a value that no traced operator made, such as one that went through NumPy."""
WRITTEN = "written"
"""The operator name of a value after a write to another tensor that shares its memory. The arguments are the value
before and the value that was written; ``region`` and ``over`` are their places in the memory."""


@dataclass(frozen=True)
class Value:
    """Stands for a tensor of the forward that depends on the network's input; ``index`` is its number in the trace."""

    index: int


@dataclass(frozen=True)
class Region:
    """The place of a tensor in its memory, in elements, as ``torch.as_strided`` takes it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        """The first place in the memory after the tensor's last element."""
        return self.offset + 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))


@dataclass(frozen=True)
class Node:
    """One operator call. A :class:`Value` stands for every argument that depends on the network's input."""

    op: str
    """name of the operator, such as ``convolution``"""
    call: int
    """index in ``Trace.calls`` of the innermost module call that it ran in"""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Value | None, ...]
    """its results; None for a result that is not a tensor"""
    func: Any = field(repr=False)
    """the operator itself"""

    @property
    def base_op(self) -> str:
        """The operator's name without the underscore at the end of in-place forms."""
        return self.op.removesuffix("_")

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument that was given at ``position`` or as the keyword ``name``; else ``default``."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def inputs(self) -> list[Value]:
        """The arguments that depend on the network's input."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Value)]


@dataclass(frozen=True)
class ConvolutionCall:
    """The arguments of one ``aten.convolution``, in torch's order."""

    input: Any
    """a tensor, or a :class:`Value` if it depends on the network's input; the same for weight and bias"""
    weight: Any
    bias: Any
    """None if the convolution has no bias"""
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    @classmethod
    def of(cls, node: Node) -> "ConvolutionCall":
        """The arguments of ``node``, which must be a convolution."""
        return cls(*node.args, **node.kwargs)


@dataclass
class ModuleCall:
    """One call of one module: its inputs, its outputs and the nodes that ran inside it."""

    path: str
    """of the module in the network; empty for the network itself"""
    module: nn.Module
    parent: int
    """index in ``Trace.calls`` of the call around it; -1 for the network itself"""
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...] = ()
    first_node: int = 0
    """index of the first node that ran inside, also inside modules that it called"""
    end_node: int = 0
    """index after the last of them"""
    is_plain: bool = False
    """its first argument, which may be given by name, and its result are tensors"""


@dataclass
class Trace:
    """One forward of a network."""

    nodes: list[Node] = field(default_factory=list)
    """in the order of execution"""
    calls: list[ModuleCall] = field(default_factory=list)
    """in the order of execution"""
    shapes: list[torch.Size] = field(default_factory=list)
    """of each value, by its index"""
    dtypes: list[torch.dtype] = field(default_factory=list)
    """of each value, by its index"""
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    result: Any = field(default=None, repr=False)
    """what the network returned"""
    read_back: list[str] = field(default_factory=list)
    """operators and methods that gave numbers of the forward to Python: another image may take another way"""
    drawn: list[str] = field(default_factory=list)
    """operators that drew random numbers"""
    learned: set[int] = field(default_factory=set, repr=False)
    """identities of parameters, buffers and tensors computed from them, whose numbers may change"""

    def consumers(self) -> dict[Value, list[int]]:
        """The indices of the nodes that read each value."""
        found: dict[Value, list[int]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            for value in dict.fromkeys(node.inputs()):
                found[value].append(index)
        return found
