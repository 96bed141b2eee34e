"""How zero channels travel through a traced network: one rule for each kind of operator, on columns instead of numbers.

Operators that only move numbers are run on the columns themselves, so that any view, split or shuffle is right without
knowing what it means. An operator without a rule makes what follows live: never wrong, at worst less saved.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from sanp.liveness import LIVE, ZERO, Columns
from sanp.trace import Node, Trace, Value

KEEP_ZERO = set(
    (
        "relu relu6 leaky_relu rrelu_with_noise prelu _prelu_kernel elu selu celu silu mish gelu hardswish tanh erf "
        "abs neg sign sqrt square sin sinh asin atan tan expm1 log1p floor ceil round trunc clone contiguous detach "
        "alias _to_copy lift_fresh dropout native_dropout hardshrink softshrink tanhshrink softsign positive to "
        "_conj sgn"
    ).split()
)
MOVE = set(
    (
        "view _unsafe_view reshape permute transpose t expand slice select split split_with_sizes chunk unbind "
        "squeeze unsqueeze index_select index flip roll repeat cat stack pixel_shuffle pixel_unshuffle "
        "channel_shuffle narrow movedim swapaxes unsafe_split unsafe_chunk native_channel_shuffle flatten unflatten "
        "tile repeat_interleave expand_as view_as"
    ).split()
)
POOL = set(
    (
        "max_pool2d_with_indices max_pool3d_with_indices max_pool1d max_pool2d max_pool3d max_pool1d_with_indices "
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d adaptive_avg_pool2d "
        "_adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d upsample_nearest1d "
        "upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
        "upsample_linear1d _upsample_bilinear2d_aa reflection_pad1d reflection_pad2d reflection_pad3d "
        "replication_pad1d replication_pad2d replication_pad3d grid_sampler_2d"
    ).split()
)
MAKES_LIVE = set(
    (
        "convolution native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit "
        "cudnn_batch_norm native_layer_norm native_group_norm sigmoid hardsigmoid softmax _softmax _log_softmax exp "
        "cos addmm mm bmm baddbmm rsqrt reciprocal log softplus rsub var_mean"
    ).split()
)


def constant_along(columns: Tensor, dims: list[int]) -> Tensor | None:
    """The columns without these dimensions, if they are the same all along them; else None."""
    for dim in sorted((dim % columns.dim() for dim in dims), reverse=True):
        head = columns.narrow(dim, 0, 1)
        if columns.stride(dim) != 0 and not bool((columns == head).all()):
            return None
        columns = head.squeeze(dim)
    return columns


class Propagation:
    """The columns of every value of a trace, filled in the order of execution."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.columns = Columns()
        self.unknown: dict[str, int] = {}
        self._of: dict[Value, Tensor] = {}

    def of(self, argument: Any) -> Tensor:
        """The columns of a value, or of a constant: live where it is not zero."""
        if isinstance(argument, Value):
            return self._of.get(argument, self.all_live(argument))
        constant = torch.as_tensor(argument)
        return torch.where(constant == 0, ZERO, LIVE).to(torch.int32)

    def all_live(self, value: Value) -> Tensor:
        """Columns that are always live, in the value's shape."""
        return torch.tensor(LIVE, dtype=torch.int32).expand(self.trace.shapes[value.index])

    def set_channels(self, value: Value, channels: Tensor) -> None:
        """Says of each channel (dimension 1) of a value which column it has, everywhere on its map."""
        shape = self.trace.shapes[value.index]
        self._of[value] = channels.to(torch.int32).reshape(1, -1, *(1,) * (len(shape) - 2)).expand(shape)

    def channels(self, value: Value, dim: int = 1) -> Tensor:
        """The column of each channel of a value; live where a channel is not one thing all over its map."""
        columns = self.of(value)
        others = [other for other in range(columns.dim()) if other != dim]
        single = constant_along(columns, others)
        return torch.full((columns.shape[dim],), LIVE) if single is None else single.long()

    def run(self, node: Node) -> None:
        """Fills in the columns of what a node puts out, by the rule for its operator."""
        inputs = node.inputs()
        if all(value not in self._of for value in inputs) and node.op not in ("mul", "mul_", "constant_pad_nd"):
            return  # live in, live out: only a product with zeros or zero padding makes a zero of a live channel
        rule = RULES.get(node.op) or RULES.get(node.op.removesuffix("_"))
        made: Any = None
        if rule is not None:
            made = rule(self, node)
        elif node.op.removesuffix("_") not in MAKES_LIVE:
            self.unknown[node.op] = self.unknown.get(node.op, 0) + 1
        if made is None:
            return
        for value, columns in zip(node.outputs, tree_leaves(made), strict=False):
            if value is not None and columns is not None and columns.shape == self.trace.shapes[value.index]:
                self._of[value] = columns


Rule = Callable[[Propagation, Node], Any]


def _keep(network: Propagation, node: Node) -> Any:
    return network.of(node.args[0])


def _move(network: Propagation, node: Node) -> Any:
    if node.op in ("index", "index_select") and len(node.inputs()) > 1:
        return None  # what is picked depends on the image
    args, kwargs = tree_map(
        lambda leaf: network.of(leaf) if isinstance(leaf, Value) else leaf, (node.args, node.kwargs)
    )
    if node.op in ("cat", "stack"):  # constants among the parts have columns too
        args = ([network.of(part) for part in node.args[0]], *args[1:])
    try:
        return node.func(*args, **kwargs)
    except RuntimeError:  # a view that only the real strides allow
        args = tree_map(lambda leaf: leaf.contiguous() if isinstance(leaf, Tensor) else leaf, args)
        return node.func(*args, **kwargs)


def _pool(network: Propagation, node: Node) -> Any:
    columns = network.of(node.args[0])
    out = node.outputs[0]
    assert out is not None
    shape = network.trace.shapes[out.index]
    channels = constant_along(columns, list(range(2, columns.dim())))  # (N, C)
    if channels is None or channels.shape != shape[:2]:
        return None
    return channels.reshape(*channels.shape, *(1,) * (len(shape) - 2)).expand(shape)


def _pad(network: Propagation, node: Node) -> Any:
    """Zero padding around a map changes no channel's column; padding with zero channels adds zero columns."""
    value = node.args[2] if len(node.args) > 2 else 0
    columns, pads = network.of(node.args[0]), node.args[1]
    out = node.outputs[0]
    assert out is not None
    shape = network.trace.shapes[out.index]
    spatial = 2 * (columns.dim() - 2)
    if value == 0 and any(pads[spatial:]):
        inner = constant_along(columns, list(range(2, columns.dim())))
        if inner is None:
            return None
        padded = torch.nn.functional.pad(inner, pads[spatial:], value=ZERO)
        return padded.reshape(*padded.shape, *(1,) * (len(shape) - 2)).expand(shape)
    return _pool(network, node) if value == 0 else None


def _reduce(network: Propagation, node: Node) -> Any:
    """A mean or sum is zero where all it runs over is: the same column all along, or a union of a few."""
    columns = network.of(node.args[0])
    dims = node.args[1] if len(node.args) > 1 and node.args[1] is not None else list(range(columns.dim()))
    dims = [dims] if isinstance(dims, int) else list(dims) or list(range(columns.dim()))
    keep = bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))
    reduced = constant_along(columns, dims)
    if reduced is None:
        if len(dims) > 1 or columns.shape[dims[0]] > 32:
            return None
        reduced, *others = columns.unbind(dims[0])
        for other in others:
            reduced = network.columns.union(reduced, other)
    for dim in sorted(dim % columns.dim() for dim in dims) if keep else ():
        reduced = reduced.unsqueeze(dim)
    return reduced


def _union(network: Propagation, node: Node) -> Any:
    return network.columns.union(network.of(node.args[0]), network.of(node.args[1]))


def _product(network: Propagation, node: Node) -> Any:
    return network.columns.intersection(network.of(node.args[0]), network.of(node.args[1]))


def _quotient(network: Propagation, node: Node) -> Any:
    out = node.outputs[0]
    assert out is not None
    return network.of(node.args[0]).expand(network.trace.shapes[out.index])


def _clamp(network: Propagation, node: Node) -> Any:
    """Zero stays zero between bounds that have zero between them."""
    low, high = [*node.args[1:], None, None][:2]
    low = node.kwargs.get("min", low)
    high = node.kwargs.get("max", high)
    fixed = all(isinstance(bound, int | float | None) for bound in (low, high))
    inside = fixed and (low is None or low <= 0) and (high is None or high >= 0)
    return network.of(node.args[0]) if inside else None


def _power(network: Propagation, node: Node) -> Any:
    exponent = node.args[1]
    return network.of(node.args[0]) if isinstance(exponent, int | float) and exponent > 0 else None


def _choose(network: Propagation, node: Node) -> Any:
    return network.columns.union(network.of(node.args[1]), network.of(node.args[2]))


RULES: dict[str, Rule] = {
    **dict.fromkeys(KEEP_ZERO, _keep),
    **dict.fromkeys(MOVE, _move),
    **dict.fromkeys(POOL, _pool),
    **dict.fromkeys(("mean", "sum", "amax", "amin", "nansum"), _reduce),
    **dict.fromkeys(("add", "sub", "maximum", "minimum"), _union),
    "mul": _product,
    "div": _quotient,
    "hardtanh": _clamp,
    "clamp": _clamp,
    "pow": _power,
    "where": _choose,
    "constant_pad_nd": _pad,
}
"""Operator to rule. ``add`` and ``sub`` with a constant are covered: a constant is live where it is not zero."""
