"""What each kind of operator does to zero channels, as rules on columns (liveness.py) instead of numbers.

Operators that only move numbers are run on the columns themselves, so that any view, split or shuffle is right without
knowing what it means. Where a rule gives None, what follows counts as live: never wrong, at worst less saved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sanp.liveness import LIVE, ZERO, Columns
from sanp.trace import WRITTEN, Node, Region, Value

KEEP_ZERO = set(
    (
        "relu relu6 leaky_relu rrelu_with_noise prelu _prelu_kernel elu selu celu silu mish gelu hardswish tanh erf "
        "abs neg sign sqrt square sin sinh asin atan tan expm1 log1p floor ceil round trunc clone contiguous detach "
        "alias _to_copy lift_fresh dropout native_dropout hardshrink softshrink positive to "
        "sgn nan_to_num alpha_dropout feature_dropout"
    ).split()
)
MOVE = set(
    (
        "view _unsafe_view reshape permute transpose t expand slice select split split_with_sizes chunk unbind "
        "squeeze unsqueeze index_select index flip roll repeat cat stack pixel_shuffle pixel_unshuffle "
        "channel_shuffle narrow movedim swapaxes unsafe_split unsafe_chunk native_channel_shuffle flatten unflatten "
        "tile repeat_interleave expand_as view_as unfold slice_scatter select_scatter index_put index_copy"
    ).split()
)
POOL = set(
    (
        "max_pool2d_with_indices max_pool3d_with_indices max_pool1d max_pool2d max_pool3d max_pool1d_with_indices "
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d adaptive_avg_pool2d "
        "_adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d upsample_nearest1d "
        "upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
        "upsample_linear1d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact1d "
        "_upsample_nearest_exact2d _upsample_nearest_exact3d reflection_pad1d reflection_pad2d reflection_pad3d "
        "replication_pad1d replication_pad2d replication_pad3d grid_sampler_2d grid_sampler_3d max_unpool2d "
        "max_unpool3d fractional_max_pool2d"
    ).split()
)
REDUCE = set("mean sum amax amin nansum max min linalg_vector_norm norm".split())
MAKES_LIVE = set(
    (
        "convolution native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit batch_norm "
        "cudnn_batch_norm native_layer_norm native_group_norm sigmoid hardsigmoid softmax _softmax _log_softmax exp "
        "cos addmm baddbmm rsqrt reciprocal log softplus log_sigmoid_forward rsub var_mean var std ones_like "
        "new_ones full_like new_full empty_like new_empty rand_like randn_like eq ne lt le gt ge logical_not argmax "
        "argmin bitwise_not"
    ).split()
)


@dataclass(frozen=True)
class Step:
    """An operator call as a rule sees it: the columns of its arguments, and where new columns are made."""

    node: Node
    of: Callable[[Any], Tensor]
    columns: Columns
    shapes: Sequence[torch.Size]

    @property
    def shape(self) -> torch.Size:
        """Of the first output."""
        out = self.node.outputs[0]
        assert out is not None
        return self.shapes[out.index]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument that may have been given by position or by name."""
        args = self.node.args
        return args[position] if len(args) > position else self.node.kwargs.get(name, default)


Rule = Callable[[Step], Any]


def constant_along(columns: Tensor, dims: list[int]) -> Tensor | None:
    """The columns without these dimensions, if they are the same all along them; else None."""
    for dim in sorted((dim % columns.dim() for dim in dims), reverse=True):
        head = columns.narrow(dim, 0, 1)
        if columns.stride(dim) != 0 and not bool((columns == head).all()):
            return None
        columns = head.squeeze(dim)
    return columns


def joined_along(columns: Tensor, dims: list[int]) -> Tensor | None:
    """As :func:`constant_along`, where zeros between do not count: a border of zeros makes no channel live."""
    for dim in sorted((dim % columns.dim() for dim in dims), reverse=True):
        head = columns.narrow(dim, 0, 1)
        if columns.stride(dim) != 0 and not bool((columns == head).all()):
            head = columns.amax(dim, keepdim=True)
            if not bool(((columns == head) | (columns == ZERO)).all()):
                return None
        columns = head.squeeze(dim)
    return columns


def _keep(step: Step) -> Any:
    return step.of(step.node.args[0])


def move(step: Step) -> Any:
    """Runs an operator that only moves numbers on what stands for them."""
    node = step.node
    args, kwargs = list(node.args), dict(node.kwargs)
    name = node.op.removesuffix("_")
    if name in ("index", "index_select", "index_put", "index_copy") and _picked_by_image(node, name):
        return None
    if name == "view" and not isinstance(args[1], list | tuple):
        return None  # the same bits as another type
    if name in ("cat", "stack"):  # constants among the parts have columns too
        args[0] = [step.of(part) for part in args[0]]
    if name in ("slice_scatter", "select_scatter", "index_put", "index_copy"):
        args[0] = step.of(args[0]).clone()
        last = 3 if name == "index_copy" else 2 if name == "index_put" else 1
        args[last] = step.of(args[last])
    args, kwargs = tree_map(lambda leaf: step.of(leaf) if isinstance(leaf, Value) else _here(leaf), (args, kwargs))
    try:
        return node.func(*args, **kwargs)
    except RuntimeError:  # a view that only the real strides allow
        args = tree_map(lambda leaf: leaf.contiguous() if isinstance(leaf, Tensor) else leaf, args)
        return node.func(*args, **kwargs)


def _here(leaf: Any) -> Any:
    """Columns live in the main memory, and so must the indices that pick them."""
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf


def _picked_by_image(node: Node, name: str) -> bool:
    """The indices depend on the input, or what is put there is added."""
    indices = node.args[2] if name in ("index_select", "index_copy") else node.args[1]
    parts = indices if isinstance(indices, list | tuple) else [indices]
    return any(isinstance(part, Value) for part in parts) or (name == "index_put" and len(node.args) > 3)


def written(step: Step) -> Any:
    """A tensor after part of its memory was written through another: its old columns, and there the new ones."""
    region, over = step.node.kwargs["region"], step.node.kwargs["over"]
    memory = torch.full((max(region.end, over.end),), LIVE, dtype=torch.int32)
    for argument, place in zip(step.node.args, (region, over), strict=True):
        _part(memory, place).copy_(step.of(argument))
    return _part(memory, region)


def _part(memory: Tensor, region: Region) -> Tensor:
    return memory.as_strided(region.shape, region.stride, region.offset)


def _over_map(channels: Tensor | None, shape: torch.Size) -> Any:
    """(N, C) columns made those of a map of this shape, if it has as many channels."""
    if channels is None or channels.shape != shape[: channels.dim()]:
        return None
    return channels.reshape(*channels.shape, *(1,) * (len(shape) - channels.dim())).expand(shape)


def _pool(step: Step) -> Any:
    spatial = next(int(letter) for letter in step.node.op.removeprefix("_upsample_nearest_exact") if letter in "123")
    columns = step.of(step.node.args[0])
    return _over_map(joined_along(columns, list(range(-spatial, 0))), step.shape)


def _pad(step: Step) -> Any:
    """Zero padding around a map changes no channel's column; padding with zero channels adds zero columns."""
    columns, pads, value = step.of(step.node.args[0]), step.node.args[1], step.argument(2, "value", 0)
    if value != 0:
        return None
    around = 2 * max(0, columns.dim() - 2)
    if not any(pads[around:]):
        whole = joined_along(columns, list(range(2, columns.dim())))
        if whole is not None:
            return _over_map(whole, step.shape)
    return torch.nn.functional.pad(columns, pads, value=ZERO)


def reduced_dims(step: Step) -> list[int]:
    """The dimensions that a mean, sum, maximum or norm runs over."""
    rank = len(step.shapes[step.node.inputs()[0].index])
    dims = step.argument(2, "dim") if "norm" in step.node.op else step.argument(1, "dim")
    dims = [dims] if isinstance(dims, int) else list(dims or range(rank))
    return [dim % rank for dim in dims] if rank else []


def _reduce(step: Step) -> Any:
    """A mean or sum is zero where all it runs over is: the same column all along, or a union of a few."""
    node = step.node
    if node.op in ("max", "min") and len(node.inputs()) > 1:
        return _union(step)
    columns, dims = step.of(node.args[0]), reduced_dims(step)
    keep = len(step.shape) == columns.dim()
    reduced = joined_along(columns, dims)
    if reduced is None:
        if len(dims) > 1 or columns.shape[dims[0]] > 32:
            return None
        reduced, *others = columns.unbind(dims[0])
        for other in others:
            reduced = step.columns.union(reduced, other)
    for dim in sorted(dims) if keep else ():
        reduced = reduced.unsqueeze(dim)
    return reduced


def _union(step: Step) -> Any:
    return step.columns.union(step.of(step.node.args[0]), step.of(step.node.args[1]))


def _product(step: Step) -> Any:
    return step.columns.intersection(step.of(step.node.args[0]), step.of(step.node.args[1]))


def _sum_with_product(step: Step) -> Any:
    start, left, right = (step.of(argument) for argument in step.node.args[:3])
    return step.columns.union(start, step.columns.intersection(left, right))


def _matrix_product(step: Step) -> Any:
    """A product of matrices is zero in the rows where the left one is and in the columns where the right one is."""
    left, right = (step.of(argument) for argument in step.node.args[:2])
    rows, columns = joined_along(left, [-1]), joined_along(right, [-2])
    live = torch.tensor(LIVE, dtype=torch.int32)
    rows = live.expand(left.shape[:-1]) if rows is None else rows
    columns = live.expand(*right.shape[:-2], right.shape[-1]) if columns is None else columns
    return step.columns.intersection(rows.unsqueeze(-1), columns.unsqueeze(-2))


def _quotient(step: Step) -> Any:
    return step.of(step.node.args[0]).expand(step.shape)


def _clamp(step: Step) -> Any:
    """Zero stays zero between bounds that have zero between them."""
    low, high = step.argument(1, "min"), step.argument(2, "max")
    if step.node.op.removesuffix("_") == "clamp_max":
        low, high = None, step.argument(1, "max")
    elif step.node.op.removesuffix("_") == "hardtanh":
        low, high = step.argument(1, "min_val", -1), step.argument(2, "max_val", 1)
    fixed = all(isinstance(bound, int | float | None) for bound in (low, high))
    inside = fixed and (low is None or low <= 0) and (high is None or high >= 0)
    return step.of(step.node.args[0]) if inside else None


def _power(step: Step) -> Any:
    exponent = step.node.args[1]
    return step.of(step.node.args[0]) if isinstance(exponent, int | float) and exponent > 0 else None


def _choose(step: Step) -> Any:
    return step.columns.union(step.of(step.node.args[1]), step.of(step.node.args[2]))


def _fill_where(step: Step) -> Any:
    return step.of(step.node.args[0]).expand(step.shape) if step.node.args[2] == 0 else None


def _copy(step: Step) -> Any:
    return step.of(step.node.args[1]).expand(step.shape)


def _zeros(step: Step) -> Any:
    return torch.tensor(ZERO, dtype=torch.int32).expand(step.shape)


def _fill(step: Step) -> Any:
    return step.of(step.node.args[1]).expand(step.shape)


def _patches(step: Step) -> Any:
    """im2col: each channel becomes one row for each place of the kernel."""
    columns = step.of(step.node.args[0])
    channels = joined_along(columns, list(range(2, columns.dim())))
    return None if channels is None else _over_map(channels.repeat_interleave(prod(step.node.args[1]), 1), step.shape)


def _unpatches(step: Step) -> Any:
    """col2im: the sum of what im2col would take apart."""
    columns = joined_along(step.of(step.node.args[0]), [2])
    return (
        None if columns is None else _over_map(joined_along(columns.unflatten(1, (step.shape[1], -1)), [2]), step.shape)
    )


def _depthwise(step: Step) -> Any:
    """A convolution makes something of nothing, except one without a bias that reads each channel by itself."""
    columns, groups = step.of(step.node.args[0]), step.node.args[8]
    if groups == 1 or columns.shape[1] != groups or step.node.args[2] is not None:
        return None
    channels = joined_along(columns, list(range(2, columns.dim())))
    return None if channels is None else _over_map(channels.repeat_interleave(step.shape[1] // groups, 1), step.shape)


RULES: dict[str, Rule] = {
    **dict.fromkeys(KEEP_ZERO, _keep),
    **dict.fromkeys(MOVE, move),
    **dict.fromkeys(POOL, _pool),
    **dict.fromkeys(REDUCE, _reduce),
    **dict.fromkeys(("add", "sub", "maximum", "minimum", "lerp", "hypot"), _union),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), _clamp),
    **dict.fromkeys(("zero", "zeros_like", "new_zeros"), _zeros),
    "mul": _product,
    "addcmul": _sum_with_product,
    **dict.fromkeys(("mm", "bmm"), _matrix_product),
    "div": _quotient,
    "pow": _power,
    "where": _choose,
    "masked_fill": _fill_where,
    "copy": _copy,
    "fill": _fill,
    "constant_pad_nd": _pad,
    "im2col": _patches,
    "col2im": _unpatches,
    "convolution": _depthwise,
    WRITTEN: written,
}
"""Operator to rule. ``add`` and ``sub`` with a constant are covered: a constant is live where it is not zero."""

CAN_ZERO = set("mul constant_pad_nd cat stack zero zeros_like new_zeros fill copy index_put".split()) | {WRITTEN}
"""Operators that can make a zero channel of live ones."""
