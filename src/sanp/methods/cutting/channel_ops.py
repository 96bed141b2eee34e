"""Which layers and operators treat each channel on its own; find_groups.py uses it to follow channels."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.tracing.graph import ModuleCall, Node
from sanp.tracing.operator_call import constant_along

ELEMENTWISE = set("sigmoid hardsigmoid exp softplus log cos rsqrt reciprocal hardtanh clamp pow rsub".split())
"""Unary operators whose result need not be zero where the input is."""
PAIRWISE = set("add sub mul div maximum minimum".split())
"""Operators of two tensors, element by element."""
REDUCING = set("mean sum amax".split())
"""Reductions along dimensions."""
RESHAPING = set(
    "view _unsafe_view reshape permute transpose t expand squeeze unsqueeze flatten cat movedim repeat".split()
)
"""Operators that move all elements."""
PICKING = set("slice select narrow unbind split split_with_sizes chunk unsafe_split unsafe_chunk".split())
"""Operators that pick some of the elements."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def is_layer(call: ModuleCall) -> bool:
    """Whether this is the call of a convolution, linear layer or batch norm whose tensors can be cut.

    Its parameters must be its own, and it must have one input and one output.
    """
    module = call.module
    plain = type(module) in (*CONVOLUTIONS, nn.Linear) or isinstance(module, _BatchNorm)
    own = plain and not hasattr(module, "parametrizations") and "weight" in module._parameters
    return own and len(call.inputs) == 1 and len(call.outputs) == 1


def constants(node: Node) -> list[Tensor]:
    """The tensors among the arguments that do not depend on the network's input, such as a scale for each channel."""
    return [leaf for leaf in _flat(node.args) if isinstance(leaf, Tensor)]


def clips_around_zero(node: Node) -> bool:
    """Whether the node clips values, as ReLU6 does, between constant bounds with zero between them."""
    if node.base_op not in ("hardtanh", "clamp"):
        return False
    named = (node.kwargs.get("min"), node.kwargs.get("max"))
    low, high = ((*node.args[1:], None, None) if len(node.args) > 1 else named)[:2]
    fixed = all(bound is None or isinstance(bound, int | float) for bound in (low, high))
    return fixed and (low is None or low <= 0) and (high is None or high >= 0)


def over_positions(node: Node, rank: int) -> bool:
    """Whether a reduction of a tensor with ``rank`` dimensions runs over dimensions after the channels only."""
    dims = node.args[1] if len(node.args) > 1 else None
    return isinstance(dims, list) and all(dim % rank > 1 for dim in dims)


def _flat(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _flat(part)] if isinstance(tree, list | tuple) else [tree]


def changing_dims(ids: Tensor) -> int:
    """The number of dimensions along which the ids change."""
    return sum(constant_along(ids, [dim]) is None for dim in range(ids.dim()))


def is_spread(shape: Sequence[int], other: Tensor) -> bool:
    """Whether an operand of this shape is broadcast along a dimension where the ids of the ``other`` operand change."""
    padded = [1] * (other.dim() - len(shape)) + list(shape)
    return any(
        size == 1 and other.shape[dim] > 1 and constant_along(other, [dim]) is None for dim, size in enumerate(padded)
    )
