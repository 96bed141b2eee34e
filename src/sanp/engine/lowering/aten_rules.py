"""One rule for each aten operator that a program can express.

A rule is given a lowering and a node; it defines the node's output there, or raises :class:`Unsupported`.
"""

import functools

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.arranging import numbered
from sanp.engine.lowering.broadcasting import power, product, quotient, sum_of, sum_with_product
from sanp.engine.lowering.composed import gated_linear_unit, larger, same_number, scaled_elu
from sanp.engine.lowering.constants import with_constant
from sanp.engine.lowering.elementwise import (
    ACTIVATION_OPERATORS,
    BATCH_NORMS,
    activation_of,
    batch_norm_of,
    norm_weights,
)
from sanp.engine.lowering.enlarging import bilinear, nearest, pad, unpool
from sanp.engine.lowering.gate_weights import floats
from sanp.engine.lowering.joining import concatenate, stack, total_of
from sanp.engine.lowering.known import ChannelsLast, Moved, Padded, Places
from sanp.engine.lowering.lowering import Lowering, Rule
from sanp.engine.lowering.memory_writes import copy_over, empty_memory, filled_memory, write_over
from sanp.engine.lowering.moves import move
from sanp.engine.lowering.patterns import INSTANCE_NORM, TOTAL
from sanp.engine.lowering.reductions import reduce, softmax, vector_norm
from sanp.engine.lowering.shapes import Window, pair, sample_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import WRITTEN, Node, Value


def _convolution(low: Lowering, node: Node) -> None:
    low.define(node.outputs[0], low.convolution(node))


def _batch_norm(low: Lowering, node: Node) -> None:
    low.define(node.outputs[0], low.scale_and_shift(node.args[0], *batch_norm_of(node), fills=True))


def _linear(low: Lowering, node: Node) -> None:
    bias, x, matrix = node.args[:3] if node.op == "addmm" else (None, *node.args[:2])
    if not isinstance(matrix, Tensor) or isinstance(bias, Value) or not isinstance(x, Value):
        raise Unsupported("a product of two features")
    if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1 or matrix.dtype != torch.float32:
        raise Unsupported("a scaled or reduced-precision product")
    shift = np.zeros(matrix.shape[1], np.float32) if bias is None else np.broadcast_to(floats(bias), matrix.shape[1:])
    last = low.channels_last(x)
    if last is not None:
        low.define(node.outputs[0], ChannelsLast(low.pointwise(node, last, floats(matrix.t()), shift)))
        return
    low.define(node.outputs[0], low.writer.linear(low.native(x), floats(matrix.t()), shift))


def _products(low: Lowering, node: Node) -> None:
    """A batch of matrix products with one constant matrix: a linear layer at every pixel."""
    x, matrices = node.args[:2]
    last = low.channels_last(x) if isinstance(x, Value) else None
    if last is None or not isinstance(matrices, Tensor) or matrices.dtype != torch.float32:
        raise Unsupported("products of matrices that are not a linear layer at every pixel")
    if not torch.equal(matrices, matrices[:1].expand_as(matrices)):
        raise Unsupported("products with different matrices")
    matrix = floats(matrices[0])
    bias = np.zeros(matrix.shape[1], np.float32)
    low.define(node.outputs[0], ChannelsLast(low.pointwise(node, last, matrix.T, bias)))


def _activation(low: Lowering, node: Node) -> None:
    x = node.args[0]
    low.define(node.outputs[0], low.activate(x, activation_of(node, low.channel_count(x))))


def _add(low: Lowering, node: Node) -> None:
    a, b = node.args[:2]
    if not isinstance(a, Value) or not isinstance(b, Value):
        return with_constant(low, node)
    factor = float(node.argument(2, "alpha", 1)) * (-1.0 if node.base_op == "sub" else 1.0)
    if factor == 1 and low.shape(a) == low.shape(b) and len(low.shape(a)) < 5:
        return low.define(node.outputs[0], low.add_values(a, b))
    return sum_of(low, node, a, b, factor)


def _reversed_difference(low: Lowering, node: Node) -> None:
    """A number minus features."""
    x, number = node.args[:2]
    alpha = node.argument(2, "alpha", 1)
    if not isinstance(x, Value) or not isinstance(number, int | float) or low.channels_last(x) is not None:
        raise Unsupported("a difference that is not a number minus features")
    channels = sample_shape(low.shape(x))[0]
    scale, shift = np.full(channels, -alpha, np.float32), np.full(channels, number, np.float32)
    low.define(node.outputs[0], low.scale_and_shift(x, scale, shift, fills=True))


def _negative(low: Lowering, node: Node) -> None:
    scale = np.full(low.channel_count(node.args[0]), -1, np.float32)
    low.define(node.outputs[0], low.scale_and_shift(node.args[0], scale, np.zeros_like(scale), fills=False))


def _multiply(low: Lowering, node: Node) -> None:
    a, b = node.args[:2]
    if not isinstance(a, Value) or not isinstance(b, Value):
        return with_constant(low, node)
    return product(low, node, a, b)


def _divide(low: Lowering, node: Node) -> None:
    if len(node.inputs()) == 2:
        return quotient(low, node)
    return with_constant(low, node)


def _max_pool(low: Lowering, node: Node) -> None:
    x, kernel = node.args[:2]
    window = Window(
        kernel=pair(kernel),
        stride=pair(node.argument(2, "stride", None) or kernel),
        padding=pair(node.argument(3, "padding", 0)),
        dilation=pair(node.argument(4, "dilation", 1)),
    )
    _, *size = sample_shape(low.shape(node.outputs[0]))  # type: ignore[arg-type]
    known = low.known(x)
    if isinstance(known, Padded) and known.lowest:  # as a padding of the window's own
        made = low.writer.pool(known.base, window.reaching(known.before, known.after), (size[0], size[1]))
        return low.define(node.outputs[0], made)
    low.define(node.outputs[0], low.writer.pool(low.native(x), window, (size[0], size[1])))
    if len(node.outputs) > 1 and node.outputs[1] is not None:
        low.define(node.outputs[1], Places(low.native(x), window))
    return None


def _average_pool(low: Lowering, node: Node) -> None:
    x, kernel = node.args[:2]
    window = Window(
        kernel=pair(kernel),
        stride=pair(node.argument(2, "stride", None) or kernel),
        padding=pair(node.argument(3, "padding", 0)),
    )
    ones = torch.ones(1, 1, *low.shape(x)[2:])
    options = {"count_include_pad": node.argument(5, "count_include_pad", True)}
    options |= {"ceil_mode": node.argument(4, "ceil_mode", False)}
    options |= {"divisor_override": node.argument(6, "divisor_override", None)}
    mean = torch.nn.functional.avg_pool2d(ones, window.kernel, window.stride, window.padding, **options)
    total = torch.nn.functional.avg_pool2d(
        ones, window.kernel, window.stride, window.padding, ceil_mode=options["ceil_mode"], divisor_override=1
    )
    inverse = floats(mean / total)[0, 0]
    if window.kernel == tuple(low.shape(x)[2:]) and inverse.shape == (1, 1) and inverse[0, 0] == 1 / ones.numel():
        low.define(node.outputs[0], low.writer.adaptive(low.native(x), (1, 1), maximum=False))  # the whole map's mean
        return
    low.define(node.outputs[0], low.writer.pool(low.native(x), window, inverse.shape, inverse))


def _adaptive(low: Lowering, node: Node, *, maximum: bool) -> None:
    _, *size = sample_shape(low.shape(node.outputs[0]))  # type: ignore[arg-type]
    if len(low.shape(node.args[0])) != 4:
        raise Unsupported("adaptive pooling that is not over a map")
    low.define(node.outputs[0], low.writer.adaptive(low.native(node.args[0]), (size[0], size[1]), maximum=maximum))


def _layer_norm(low: Lowering, node: Node) -> None:
    """Over the channels of each pixel: of a map with its channels last, or of a vector."""
    x, sizes, weight, bias, eps = node.args[:5]
    last, shape = low.channels_last(x), low.shape(x)
    if list(sizes) != [shape[-1]] or (last is None and len(shape) != 2):
        raise Unsupported("a layer norm that is not over the channels of each pixel")
    scale = np.ones(shape[-1], np.float32) if weight is None else floats(weight)
    shift = np.zeros(shape[-1], np.float32) if bias is None else floats(bias)
    if last is None:
        low.define(node.outputs[0], low.writer.layer_norm(low.native(x), scale, shift, eps))
    else:
        low.define(node.outputs[0], ChannelsLast(low.writer.layer_norm(low.written(last), scale, shift, eps)))


def _instance_norm(low: Lowering, node: Node) -> None:
    x, weight, bias, eps = node.args
    low.define(
        node.outputs[0], low.writer.instance_norm(low.native(x), *norm_weights(weight, bias, low.shape(x)[1]), eps)
    )


def _group_norm(low: Lowering, node: Node) -> None:
    """Groups of channels as the rows of one channel each, and then a scale and a shift for every channel."""
    x, weight, bias, _, channels, _, groups, eps = node.args[:8]
    shape = low.shape(x)
    ones = np.ones(groups, np.float32)
    read = low.shaped(x, (groups, channels // groups, shape[2:].numel()))
    made = low.writer.instance_norm(read, ones, np.zeros_like(ones), eps)
    flat = low.arranged(Moved(made, numbered(shape[1:])), sample_shape(shape))
    low.define(node.outputs[0], low.writer.affine(flat, *norm_weights(weight, bias, channels)))


def _average_pool_upright(low: Lowering, node: Node) -> None:
    """Over the first of three dimensions, as the local response norm of AlexNet has it."""
    x, kernel = node.args[:2]
    kernel, stride = list(kernel), list(node.argument(2, "stride", None) or kernel)
    options = [node.argument(3, "padding", [0]), node.argument(4, "ceil_mode", False)]
    if kernel[1:] != [1, 1] or stride[1:] != [1, 1] or any(options[0]) or options[1] or len(node.args) > 6:
        raise Unsupported("an average over three dimensions that is not along the first alone")
    _, *size = sample_shape(low.shape(node.outputs[0]))  # type: ignore[arg-type]
    inverse = np.full(size, 1 / kernel[0], np.float32)
    window = Window(kernel=(kernel[0], 1), stride=(stride[0], 1))
    low.define(node.outputs[0], low.writer.pool(low.native(x), window, (size[0], size[1]), inverse))


def _same(low: Lowering, node: Node) -> None:
    if node.kwargs.get("dtype") not in (None, torch.float32):
        raise Unsupported("another precision")
    low.define(node.outputs[0], low.native(node.args[0]))


def _restrided(low: Lowering, node: Node) -> None:
    """Another order in memory is no other content, where the shape stays."""
    if tuple(node.args[1]) != tuple(low.shape(node.args[0])) or not node.op.endswith("_"):
        raise Unsupported("elements at other places of memory")
    low.define(node.outputs[0], low.native(node.args[0]))


def _move(low: Lowering, node: Node) -> None:
    if len(node.inputs()) != 1:
        raise Unsupported(f"{node.op} of several features")
    move(low, node)


# Operators that only move numbers about: the lowering runs them on the numbers of the elements.
MOVES = (
    "view _unsafe_view reshape permute transpose slice select split split_with_sizes chunk squeeze unsqueeze flip "
    "index_select narrow pixel_unshuffle channel_shuffle native_channel_shuffle unflatten clone detach alias "
    "contiguous lift_fresh expand repeat roll rot90 unbind index pixel_shuffle im2col reflection_pad1d "
    "reflection_pad2d replication_pad1d replication_pad2d unfold diagonal unsafe_split unsafe_chunk "
    "upsample_nearest1d _upsample_nearest_exact1d _upsample_nearest_exact2d"
).split()

POSITIONWISE = (*MOVES, *ACTIVATION_OPERATORS, "native_layer_norm", "addmm", "mm", "bmm", "add", "sub", "mul", "div")
"""operators that take a map with its channels last, if what comes before has made one"""

RULES: dict[str, Rule] = {
    "convolution": _convolution,
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
    "addmm": _linear,
    "mm": _linear,
    "bmm": _products,
    **dict.fromkeys(ACTIVATION_OPERATORS, _activation),
    "add": _add,
    "sub": _add,
    "rsub": _reversed_difference,
    "neg": _negative,
    "upsample_nearest2d": nearest,
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), same_number),
    "glu": gated_linear_unit,
    **dict.fromkeys(("elu", "celu"), scaled_elu),
    "maximum": functools.partial(larger, sign=1),
    "minimum": functools.partial(larger, sign=-1),
    WRITTEN: write_over,
    "copy_": copy_over,
    **dict.fromkeys(("new_empty", "new_zeros", "empty_like"), empty_memory),
    **dict.fromkeys(("zero_", "fill_"), filled_memory),
    "mul": _multiply,
    "div": _divide,
    "max_pool2d_with_indices": _max_pool,
    "max_pool2d": _max_pool,
    "avg_pool2d": _average_pool,
    "_adaptive_avg_pool2d": functools.partial(_adaptive, maximum=False),
    "adaptive_max_pool2d": functools.partial(_adaptive, maximum=True),
    "mean": functools.partial(reduce, maximum=False, mean=True),
    "sum": functools.partial(reduce, maximum=False),
    "amax": functools.partial(reduce, maximum=True),
    "max": functools.partial(reduce, maximum=True),
    **dict.fromkeys(("linalg_vector_norm", "norm"), vector_norm),
    "addcmul": sum_with_product,
    "_softmax": softmax,
    "_log_softmax": softmax,
    "cat": concatenate,
    "stack": stack,
    TOTAL: total_of,
    INSTANCE_NORM: _instance_norm,
    "native_group_norm": _group_norm,
    "upsample_bilinear2d": bilinear,
    "max_unpool2d": unpool,
    "avg_pool3d": _average_pool_upright,
    **dict.fromkeys(("pow", "sqrt", "rsqrt", "reciprocal"), power),
    "constant_pad_nd": pad,
    "native_layer_norm": _layer_norm,
    "_to_copy": _same,
    "as_strided": _restrided,
    **dict.fromkeys(MOVES, _move),
}
