"""What each operator does to zero channels: a rule computes the mask ids of the output from those of the inputs.

If a rule returns None or raises an error, the output counts as live. That is never wrong, but may count too many FLOPs.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from sanp.tracing.graph import WRITTEN, ConvolutionCall
from sanp.tracing.masks import LIVE, ZERO
from sanp.tracing.moves import run_on_ids, written
from sanp.tracing.operator_call import OperatorCall, joined_along
from sanp.tracing.operators import ALONG, ATTENTION, KEEP_ZERO, MOVE, POOL, REDUCE

ZeroRule = Callable[[OperatorCall], Any]


def _keep(call: OperatorCall) -> Any:
    return call.of(call.node.args[0])


def _over_map(channels: Tensor | None, shape: torch.Size) -> Any:
    """Ids (N, C) expanded to a map of the shape (N, C, ...); None if the numbers of samples or channels differ."""
    if channels is None or channels.shape != shape[: channels.dim()]:
        return None
    return channels.reshape(*channels.shape, *(1,) * (len(shape) - channels.dim())).expand(shape)


def _pool(call: OperatorCall) -> Any:
    spatial = next(int(letter) for letter in call.node.op.removeprefix("_upsample_nearest_exact") if letter in "123")
    masks = call.of(call.node.args[0])
    return _over_map(joined_along(masks, list(range(-spatial, 0))), call.shape)


def _pad(call: OperatorCall) -> Any:
    """Zeros around a map change no channel's mask; added zero channels are always zero; other padding is live."""
    masks, pads, value = call.of(call.node.args[0]), call.node.args[1], call.node.argument(2, "value", 0)
    if value != 0:
        return torch.nn.functional.pad(masks, pads, value=LIVE)
    around = 2 * max(0, masks.dim() - 2)
    if not any(pads[around:]):
        whole = joined_along(masks, list(range(2, masks.dim())))
        if whole is not None:
            return _over_map(whole, call.shape)
    return torch.nn.functional.pad(masks, pads, value=ZERO)


def reduced_dims(call: OperatorCall) -> list[int]:
    """The dimensions that a mean, sum, maximum or norm reduces, counted from the first."""
    rank = len(call.shapes[call.node.inputs()[0].index])
    dims = call.node.argument(2, "dim") if "norm" in call.node.op else call.node.argument(1, "dim")
    dims = [dims] if isinstance(dims, int) else list(dims or range(rank))
    return [dim % rank for dim in dims] if rank else []


def _reduce(call: OperatorCall) -> Any:
    """A mean or sum is zero where all elements that it reduces are: their common mask, or the union of a few."""
    node = call.node
    if node.op in ("max", "min") and len(node.inputs()) > 1:
        return _union(call)
    masks, dims = call.of(node.args[0]), reduced_dims(call)
    keep = len(call.shape) == masks.dim()
    reduced = joined_along(masks, dims)
    if reduced is None:
        if len(dims) > 1 or masks.shape[dims[0]] > 32:
            return None
        reduced, *others = masks.unbind(dims[0])
        for other in others:
            reduced = call.masks.union(reduced, other)
    for dim in sorted(dims) if keep else ():
        reduced = reduced.unsqueeze(dim)
    return reduced


def dim_along(call: OperatorCall) -> int:
    """The dimension along which ``topk``, ``sort``, ``cumsum`` and the like work, counted from the first."""
    name, rank = call.node.base_op, len(call.shapes[call.node.inputs()[0].index])
    dim = call.node.argument(2 if name == "topk" else 1, "dim", -1)
    if not isinstance(dim, int):
        raise TypeError(f"{name} along {dim}")
    return dim % rank


def _along(call: OperatorCall) -> Any:
    """Zero where all elements along the dimension are, if they have the same mask; otherwise channels are mixed."""
    masks, dim = call.of(call.node.args[0]), dim_along(call)
    whole = joined_along(masks, [dim])
    if whole is None or len(call.shape) != masks.dim():
        raise ValueError("channels are mixed")
    whole = whole.unsqueeze(dim)
    for other in range(masks.dim()):
        if other != dim:
            whole = whole.narrow(other, 0, call.shape[other])
    return (whole.expand(call.shape),)


def _attention(call: OperatorCall) -> Any:
    """Attention mixes positions, but each channel of the result comes from the same channel of the values."""
    values = joined_along(call.of(call.node.args[2]), [-2])
    if values is None:
        raise ValueError("values of different channels at different positions")
    return (values.unsqueeze(-2).expand(call.shape),)


def _gated_half(call: OperatorCall) -> Any:
    """A gated linear unit, the first half times a sigmoid of the second: zero where the first half is."""
    dim = call.node.argument(1, "dim", -1)
    return call.of(call.node.args[0]).chunk(2, dim)[0]


def _restrided(call: OperatorCall) -> Any:
    """An in-place ``as_strided`` to the same shape only changes the order in memory."""
    masks = call.of(call.node.args[0])
    same = tuple(call.node.args[1]) == tuple(masks.shape) == tuple(call.shape)
    return masks if same and call.node.op.endswith("_") else None


def _union(call: OperatorCall) -> Any:
    return call.masks.union(call.of(call.node.args[0]), call.of(call.node.args[1]))


def _product(call: OperatorCall) -> Any:
    return call.masks.intersection(call.of(call.node.args[0]), call.of(call.node.args[1]))


def _sum_with_product(call: OperatorCall) -> Any:
    start, left, right = (call.of(argument) for argument in call.node.args[:3])
    return call.masks.union(start, call.masks.intersection(left, right))


def _matrix_product(call: OperatorCall) -> Any:
    """A matrix product is zero in the rows where the left matrix is, and in the columns where the right one is."""
    left, right = (call.of(argument) for argument in call.node.args[:2])
    of_row, of_column = joined_along(left, [-1]), joined_along(right, [-2])
    both = bool((left != LIVE).any()) and bool((right != LIVE).any())
    if both and (of_row is None or of_column is None):
        raise ValueError("live only if a channel is that is live on both sides")
    live = torch.tensor(LIVE, dtype=torch.int32)
    of_row = live.expand(left.shape[:-1]) if of_row is None else of_row
    of_column = live.expand(*right.shape[:-2], right.shape[-1]) if of_column is None else of_column
    return call.masks.intersection(of_row.unsqueeze(-1), of_column.unsqueeze(-2))


def _quotient(call: OperatorCall) -> Any:
    return call.of(call.node.args[0]).expand(call.shape)


def _clamp(call: OperatorCall) -> Any:
    """Zero stays zero if it lies between the bounds, and these are constants."""
    low, high = call.node.argument(1, "min"), call.node.argument(2, "max")
    if call.node.base_op == "clamp_max":
        low, high = None, call.node.argument(1, "max")
    elif call.node.base_op == "hardtanh":
        low, high = call.node.argument(1, "min_val", -1), call.node.argument(2, "max_val", 1)
    fixed = all(isinstance(bound, int | float | None) for bound in (low, high))
    inside = fixed and (low is None or low <= 0) and (high is None or high >= 0)
    return call.of(call.node.args[0]) if inside else None


def _power(call: OperatorCall) -> Any:
    exponent = call.node.args[1]
    return call.of(call.node.args[0]) if isinstance(exponent, int | float) and exponent > 0 else None


def _choose(call: OperatorCall) -> Any:
    return call.masks.union(call.of(call.node.args[1]), call.of(call.node.args[2]))


def _fill_where(call: OperatorCall) -> Any:
    return call.of(call.node.args[0]).expand(call.shape) if call.node.args[2] == 0 else None


def _copy(call: OperatorCall) -> Any:
    return call.of(call.node.args[1]).expand(call.shape)


def _zeros(call: OperatorCall) -> Any:
    return torch.tensor(ZERO, dtype=torch.int32).expand(call.shape)


def _filled(call: OperatorCall) -> Any:
    return _zeros(call) if call.node.argument(1, "fill_value") == 0 else None


def _fill(call: OperatorCall) -> Any:
    return call.of(call.node.args[1]).expand(call.shape)


def _patches(call: OperatorCall) -> Any:
    """im2col: each channel becomes one output channel for each element of the kernel."""
    masks = call.of(call.node.args[0])
    channels = joined_along(masks, list(range(2, masks.dim())))
    return None if channels is None else _over_map(channels.repeat_interleave(prod(call.node.args[1]), 1), call.shape)


def _unpatches(call: OperatorCall) -> Any:
    """col2im, the reverse of im2col: adds up the channels that belong to one output channel."""
    masks = joined_along(call.of(call.node.args[0]), [2])
    return None if masks is None else _over_map(joined_along(masks.unflatten(1, (call.shape[1], -1)), [2]), call.shape)


def _depthwise(call: OperatorCall) -> Any:
    """A depthwise convolution without a bias keeps zero channels zero; any other makes all its outputs live."""
    conv = ConvolutionCall.of(call.node)
    masks, groups = call.of(conv.input), conv.groups
    if groups == 1 or masks.shape[1] != groups or conv.bias is not None:
        return None
    channels = joined_along(masks, list(range(2, masks.dim())))
    return None if channels is None else _over_map(channels.repeat_interleave(call.shape[1] // groups, 1), call.shape)


ZERO_RULES: dict[str, ZeroRule] = {
    **dict.fromkeys(KEEP_ZERO, _keep),
    **dict.fromkeys(MOVE, run_on_ids),
    **dict.fromkeys(POOL, _pool),
    **dict.fromkeys(REDUCE, _reduce),
    **dict.fromkeys(("add", "sub", "maximum", "minimum", "lerp", "hypot"), _union),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), _clamp),
    **dict.fromkeys(("zero", "zeros_like", "new_zeros"), _zeros),
    "full_like": _filled,
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
"""Operator name to rule. They also serve for constant operands, which are live where they are not zero."""
