"""Finds the dimension of each value that goes over the samples of the batch, since a mask holds for one sample only.

A network may fold its batch into other dimensions and back, or mix samples. If a value has no such dimension, all its
channels count as live.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from sanp.tracing.graph import ALIASED, WRITTEN, ConvolutionCall, Node, Trace, Value
from sanp.tracing.masks import MaskTable
from sanp.tracing.moves import run_on_ids, written
from sanp.tracing.operator_call import OperatorCall
from sanp.tracing.operators import ALONG, MOVE, REDUCE
from sanp.tracing.zero_rules import dim_along, reduced_dims

_NOBODY, _UNKNOWN = -1, -2
"""in place of a sample's number: the element belongs to no sample (a constant), or to an unknown one"""


@dataclass(frozen=True)
class SampleDim:
    """A dimension of a value that goes over samples."""

    dim: int
    """counted from the end: -4 for the batch dimension of (N, C, H, W)"""
    samples: tuple[int, ...]
    """the number of the sample at each place along the dimension"""


class SampleDims:
    """The sample dimension of each value of a trace; :meth:`follow` fills them in, node by node.

    A sample is an entry of the first dimension of the first convolution's input. If a network folds something else into
    the batch, such as the frames of a video, each frame is a sample.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        convolutions = (ConvolutionCall.of(node).input for node in trace.nodes if node.op == "convolution")
        first = next((value for value in convolutions if isinstance(value, Value)), trace.inputs[0])
        self.count: int = trace.shapes[first.index][0]
        """the number of samples in the batch"""
        self._of: dict[Value, SampleDim | None] = {value: self._as_batch(value) for value in trace.inputs}
        self._start = first if self._of.get(first) is None else None
        """the input of the first convolution, unless it is an input of the network with a batch dimension"""

    def __getitem__(self, value: Value) -> SampleDim | None:
        """The sample dimension of a value; None if it has none."""
        return self._of.get(value)

    def is_batch(self, value: Value) -> bool:
        """Whether the first dimension of a value goes over all samples in order."""
        return self[value] is not None and self[value] == self._as_batch(value)

    def follow(self, node: Node) -> None:
        """Fills in the sample dimensions of a node's outputs."""
        for value, dim in zip(node.outputs, self._after(node), strict=False):
            if value is not None:
                self._of[value] = dim
        if self._start in node.outputs and self._start is not None:
            self._of[self._start] = self._as_batch(self._start)

    def _as_batch(self, value: Value) -> SampleDim | None:
        """The first dimension as the sample dimension; None if it does not have one entry for each sample."""
        shape = self.trace.shapes[value.index]
        return SampleDim(-len(shape), tuple(range(self.count))) if shape[:1] == (self.count,) else None

    def _after(self, node: Node) -> Iterable[SampleDim | None]:
        name = node.base_op
        inputs = [value for value in node.inputs() if self[value] is not None]
        if node.op == ALIASED:  # its origin is unknown; if it has the size of the batch, it is taken for one
            return [self._as_batch(value) if value is not None else None for value in node.outputs]
        if not inputs:
            return [None] * len(node.outputs)
        if name in MOVE or node.op == WRITTEN:
            try:
                made = (run_on_ids if name in MOVE else written)(self._call(node))
            except (RuntimeError, IndexError, TypeError, ValueError):
                made = None
            if made is not None:
                return [_changing_dim(samples) for samples in tree_leaves(made)]
        if name in ALONG:
            return [self._unless_along(node, node.args[0])] * len(node.outputs)
        if name in REDUCE and len(node.inputs()) == 1:
            return [self._reduced(node, inputs[0])] * len(node.outputs)
        return [self._common(inputs, value) if value is not None else None for value in node.outputs]

    def _call(self, node: Node) -> OperatorCall:
        """The operator call with sample numbers in place of mask ids; no new ids are made of them."""
        return OperatorCall(node, self._samples_of, MaskTable(), self.trace.shapes)

    def _unless_along(self, node: Node, value: Any) -> SampleDim | None:
        """The sample dimension of ``value``, unless the node works along that very dimension."""
        found, out = self[value] if isinstance(value, Value) else None, node.outputs[0]
        if found is None or out is None:
            return None
        shape = self.trace.shapes[out.index]
        along = dim_along(self._call(node)) - len(self.trace.shapes[value.index])
        return found if found.dim != along and shape[found.dim] == len(found.samples) else None

    def _reduced(self, node: Node, value: Value) -> SampleDim | None:
        """The sample dimension after a mean, sum, maximum or norm; None if that runs over the samples."""
        found, out = self[value], node.outputs[0]
        assert found is not None and out is not None
        rank, dims = len(self.trace.shapes[value.index]), reduced_dims(self._call(node))
        place = rank + found.dim
        if place in dims:
            return None
        if len(self.trace.shapes[out.index]) == rank:
            return found
        return SampleDim(found.dim + sum(dim > place for dim in dims), found.samples)

    def _common(self, inputs: list[Value], out: Value) -> SampleDim | None:
        """The sample dimension of the inputs that fits the shape of the output, if they agree on one."""
        shape = self.trace.shapes[out.index]
        fitting = set()
        for value in inputs:
            found = self[value]
            assert found is not None
            dim = found.dim
            if dim == -len(self.trace.shapes[value.index]) and len(inputs) == 1:
                dim = -len(shape)  # the first dimension stays the batch, whatever becomes of the others
            if -dim <= len(shape) and shape[dim] == len(found.samples):
                fitting.add(SampleDim(dim, found.samples))
        batch = self._as_batch(out)  # an operand that is broadcast over a batch does not move its samples
        return batch if batch in fitting else fitting.pop() if len(fitting) == 1 else None

    def _samples_of(self, argument: Any) -> Tensor:
        """The number of the sample that each element of an argument belongs to."""
        if not isinstance(argument, Value):
            return torch.full_like(torch.as_tensor(argument).cpu(), _NOBODY, dtype=torch.int32)
        shape, found = self.trace.shapes[argument.index], self[argument]
        if found is None:
            return torch.tensor(_UNKNOWN, dtype=torch.int32).expand(shape)
        return torch.tensor(found.samples, dtype=torch.int32).reshape(-1, *(1,) * (-found.dim - 1)).expand(shape)


def _changing_dim(samples: Tensor) -> SampleDim | None:
    """The one dimension along which the sample numbers change; None if there are several or some are unknown."""
    if samples.dim() == 0 or samples.numel() == 0:
        return None
    small = samples
    for dim in range(samples.dim()):
        if samples.stride(dim) == 0:
            small = small.narrow(dim, 0, 1)
    if bool((small == _UNKNOWN).any()):
        return None
    changing = [
        dim for dim in range(small.dim()) if not bool(((small == _highest(small, dim)) | (small == _NOBODY)).all())
    ]
    if len(changing) > 1:
        return None
    along = changing[0] if changing else 0
    for dim in range(small.dim()):
        small = small if dim == along else _highest(small, dim)
    each = small.flatten().expand(samples.shape[along]).tolist()
    return None if min(each) < 0 else SampleDim(along - samples.dim(), tuple(each))


def _highest(samples: Tensor, dim: int) -> Tensor:
    return samples.amax(dim, keepdim=True)
