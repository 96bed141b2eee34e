"""Which dimension of each value goes over the samples of the batch: a mask holds for one sample, so this must be known.

A network may fold its batch into other dimensions and back, or mix samples. A value without such a dimension has
channels that count as always live.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from sanp.tracing.graph import ALIASED, WRITTEN, ConvolutionCall, Node, Trace, Value
from sanp.tracing.masks import MaskTable
from sanp.tracing.moves import move, written
from sanp.tracing.operator_call import OperatorCall
from sanp.tracing.operators import ALONG, MOVE, REDUCE
from sanp.tracing.zero_rules import dim_along, reduced_dims

_NOBODY, _UNKNOWN = -1, -2
"""in place of a sample's number: an element of a constant, and one that may come from any sample"""


@dataclass(frozen=True)
class SampleDim:
    """A dimension that goes over samples."""

    dim: int
    """counted from the last, so -4 for the batch of a map"""
    samples: tuple[int, ...]
    """the sample at each place along it"""


class SampleDims:
    """The sample dimension of every value of a trace, filled node by node.

    A sample is a row of what the first convolution reads: a network that folds something else into the batch, such as
    the frames of a video, is counted by frame.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        convolutions = (ConvolutionCall.of(node).input for node in trace.nodes if node.op == "convolution")
        first = next((value for value in convolutions if isinstance(value, Value)), trace.inputs[0])
        self.count: int = trace.shapes[first.index][0]
        """how many samples the batch has"""
        self._of: dict[Value, SampleDim | None] = {value: self._as_batch(value) for value in trace.inputs}
        self._start = first if self._of.get(first) is None else None
        """what the first convolution reads, where it is not an input itself"""

    def __getitem__(self, value: Value) -> SampleDim | None:
        """The sample dimension of a value; None if it has none."""
        return self._of.get(value)

    def is_batch(self, value: Value) -> bool:
        """The first dimension has one row for each sample, in order."""
        return self[value] is not None and self[value] == self._as_batch(value)

    def follow(self, node: Node) -> None:
        """Fills in what a node puts out."""
        for value, dim in zip(node.outputs, self._after(node), strict=False):
            if value is not None:
                self._of[value] = dim
        if self._start in node.outputs and self._start is not None:
            self._of[self._start] = self._as_batch(self._start)

    def _as_batch(self, value: Value) -> SampleDim | None:
        """What a value has if its first dimension is the batch."""
        shape = self.trace.shapes[value.index]
        return SampleDim(-len(shape), tuple(range(self.count))) if shape[:1] == (self.count,) else None

    def _after(self, node: Node) -> Iterable[SampleDim | None]:
        name = node.base_op
        inputs = [value for value in node.inputs() if self[value] is not None]
        if node.op == ALIASED:  # nothing is known of it; most likely it is a batch like any other
            return [self._as_batch(value) if value is not None else None for value in node.outputs]
        if not inputs:
            return [None] * len(node.outputs)
        if name in MOVE or node.op == WRITTEN:
            try:
                made = (move if name in MOVE else written)(self._call(node))
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
        """The operator on the samples' numbers in place of mask ids; those make no new ids."""
        return OperatorCall(node, self._samples_of, MaskTable(), self.trace.shapes)

    def _unless_along(self, node: Node, value: Any) -> SampleDim | None:
        """That of what is reordered along a dimension, which must not be the samples' own."""
        found, out = self[value] if isinstance(value, Value) else None, node.outputs[0]
        if found is None or out is None:
            return None
        shape = self.trace.shapes[out.index]
        along = dim_along(self._call(node)) - len(self.trace.shapes[value.index])
        return found if found.dim != along and shape[found.dim] == len(found.samples) else None

    def _reduced(self, node: Node, value: Value) -> SampleDim | None:
        """What is left by a mean, sum, maximum or norm."""
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
        """The dimension of the inputs that fits the output, if they agree on it."""
        shape = self.trace.shapes[out.index]
        fitting = set()
        for value in inputs:
            found = self[value]
            assert found is not None
            dim = found.dim
            if dim == -len(self.trace.shapes[value.index]) and len(inputs) == 1:
                dim = -len(shape)  # a batch stays one, whatever becomes of its maps
            if -dim <= len(shape) and shape[dim] == len(found.samples):
                fitting.add(SampleDim(dim, found.samples))
        batch = self._as_batch(out)  # what is added to a batch leaves its samples where they are
        return batch if batch in fitting else fitting.pop() if len(fitting) == 1 else None

    def _samples_of(self, argument: Any) -> Tensor:
        """The sample of each element of an argument."""
        if not isinstance(argument, Value):
            return torch.full_like(torch.as_tensor(argument).cpu(), _NOBODY, dtype=torch.int32)
        shape, found = self.trace.shapes[argument.index], self[argument]
        if found is None:
            return torch.tensor(_UNKNOWN, dtype=torch.int32).expand(shape)
        return torch.tensor(found.samples, dtype=torch.int32).reshape(-1, *(1,) * (-found.dim - 1)).expand(shape)


def _changing_dim(samples: Tensor) -> SampleDim | None:
    """From the sample of each element to the one dimension along which it changes, if there is only one."""
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
