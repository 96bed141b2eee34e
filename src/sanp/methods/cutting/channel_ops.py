"""Which layers and operators treat channels one by one, for those who follow channels through a network (follow.py)."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.tracing.graph import ModuleCall, Node
from sanp.tracing.operator_call import constant_along

ELEMENTWISE = set("sigmoid hardsigmoid exp softplus log cos rsqrt reciprocal hardtanh clamp pow rsub".split())
"""Unary operators that need not keep a zero."""
PAIRWISE = set("add sub mul div maximum minimum".split())
REDUCING = set("mean sum amax".split())
RESHAPING = set(
    "view _unsafe_view reshape permute transpose t expand squeeze unsqueeze flatten cat movedim repeat".split()
)
PICKING = set("slice select narrow unbind split split_with_sizes chunk unsafe_split unsafe_chunk".split())
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def is_layer(call: ModuleCall) -> bool:
    """A plain layer whose tensors can be cut: its parameters are its own, one value in and one out."""
    module = call.module
    plain = type(module) in (*CONVOLUTIONS, nn.Linear) or isinstance(module, _BatchNorm)
    own = plain and not hasattr(module, "parametrizations") and "weight" in module._parameters
    return own and len(call.inputs) == 1 and len(call.outputs) == 1


def constants(node: Node) -> list[Tensor]:
    """Tensors among the arguments that do not depend on the input, such as a scale for each channel."""
    return [leaf for leaf in _flat(node.args) if isinstance(leaf, Tensor)]


def clips_around_zero(node: Node) -> bool:
    """A clipping, as ReLU6 is one, between fixed bounds that have zero between them."""
    if node.base_op not in ("hardtanh", "clamp"):
        return False
    named = (node.kwargs.get("min"), node.kwargs.get("max"))
    low, high = ((*node.args[1:], None, None) if len(node.args) > 1 else named)[:2]
    fixed = all(bound is None or isinstance(bound, int | float) for bound in (low, high))
    return fixed and (low is None or low <= 0) and (high is None or high >= 0)


def over_positions(node: Node, rank: int) -> bool:
    """A mean or sum runs over the dimensions behind the channels only."""
    dims = node.args[1] if len(node.args) > 1 else None
    return isinstance(dims, list) and all(dim % rank > 1 for dim in dims)


def _flat(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _flat(part)] if isinstance(tree, list | tuple) else [tree]


def changing_dims(ids: Tensor) -> int:
    """Along how many dimensions ids change."""
    return sum(constant_along(ids, [dim]) is None for dim in range(ids.dim()))


def is_spread(shape: Sequence[int], other: Tensor) -> bool:
    """An operand of this shape is repeated along a dimension where the other's ids change."""
    padded = [1] * (other.dim() - len(shape)) + list(shape)
    return any(
        size == 1 and other.shape[dim] > 1 and constant_along(other, [dim]) is None for dim, size in enumerate(padded)
    )
