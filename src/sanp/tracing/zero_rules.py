"""What each kind of operator does to zero channels, as rules on columns (liveness.py) instead of numbers.

Where a rule gives None, what follows counts as live: never wrong, at worst less saved.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from sanp.tracing.graph import WRITTEN, ConvolutionCall
from sanp.tracing.masks import LIVE, ZERO
from sanp.tracing.moves import move, written
from sanp.tracing.operator_call import Step, joined_along
from sanp.tracing.operators import ALONG, ATTENTION, KEEP_ZERO, MOVE, POOL, REDUCE

Rule = Callable[[Step], Any]


def _keep(step: Step) -> Any:
    return step.of(step.node.args[0])


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
        return torch.nn.functional.pad(columns, pads, value=LIVE)
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


def dim_along(step: Step) -> int:
    """The dimension along which an operator reorders or adds up."""
    name, rank = step.node.op.removesuffix("_"), len(step.shapes[step.node.inputs()[0].index])
    dim = step.argument(2 if name == "topk" else 1, "dim", -1)
    if not isinstance(dim, int):
        raise TypeError(f"{name} along {dim}")
    return dim % rank


def _along(step: Step) -> Any:
    """Zero where all is along the dimension; the rest has to be of the same places as before."""
    columns, dim = step.of(step.node.args[0]), dim_along(step)
    whole = joined_along(columns, [dim])
    if whole is None or len(step.shape) != columns.dim():
        raise ValueError("channels are mixed")
    whole = whole.unsqueeze(dim)
    for other in range(columns.dim()):
        if other != dim:
            whole = whole.narrow(other, 0, step.shape[other])
    return (whole.expand(step.shape),)


def _attention(step: Step) -> Any:
    """Positions are weighed, channels of the values stay apart."""
    values = joined_along(step.of(step.node.args[2]), [-2])
    if values is None:
        raise ValueError("values of different channels at different positions")
    return (values.unsqueeze(-2).expand(step.shape),)


def _gated_half(step: Step) -> Any:
    """A gated linear unit: the first half times a sigmoid of the second."""
    dim = step.argument(1, "dim", -1)
    return step.of(step.node.args[0]).chunk(2, dim)[0]


def _restrided(step: Step) -> Any:
    """Another order in memory is no other content, where the shape stays."""
    columns = step.of(step.node.args[0])
    same = tuple(step.node.args[1]) == tuple(columns.shape) == tuple(step.shape)
    return columns if same and step.node.op.endswith("_") else None


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
    both = bool((left != LIVE).any()) and bool((right != LIVE).any())
    if both and (rows is None or columns is None):
        raise ValueError("live only if a channel is that is live on both sides")
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
    conv = ConvolutionCall.of(step.node)
    columns, groups = step.of(conv.input), conv.groups
    if groups == 1 or columns.shape[1] != groups or conv.bias is not None:
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
    **dict.fromkeys(ALONG, _along),
    **dict.fromkeys(ATTENTION, _attention),
    "glu": _gated_half,
    "as_strided": _restrided,
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
