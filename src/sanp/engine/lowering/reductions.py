"""Rules for sums, means and maxima over any dimensions, and softmax."""

import math
from typing import Any

import numpy as np
import torch

from sanp.engine.lowering.arranging import arranged, numbered
from sanp.engine.lowering.known import Moved, Pending, Places
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.shapes import Window, plane_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value

_FEW = 8
"""parts that are added one by one"""
_MOST = 1024
"""numbers under one window of a pooling"""


def reduce(low: Lowering, node: Node, *, maximum: bool, mean: bool = False) -> None:
    """Over some dimensions, none of them that of the samples."""
    x = node.args[0]
    if len(node.outputs) > 1 and node.outputs[1] is not None:
        low.define(node.outputs[1], Places())
    shape, dims = low.shape(x), len(low.shape(x))
    over = _dimensions(node.argument(1, "dim", None), dims)
    if node.kwargs.get("dtype") not in (None, torch.float32):
        raise Unsupported(f"{node.op} in another precision")
    last = low.channels_last(x)
    count = math.prod(shape[d] for d in over)
    scale = 1.0 if mean else float(count)
    if last is not None and over == list(range(1, dims - 1)) and not node.argument(2, "keepdim", False):
        return _defined(low, node, low.writer.adaptive(low.written(last), (1, 1), maximum=maximum), scale, maximum)
    if last is None and dims > 2 and over == list(range(2, dims)):
        return _defined(low, node, low.writer.adaptive(low.native(x), (1, 1), maximum=maximum), scale, maximum)
    if not maximum and last is None and dims == 4 and over == [1]:
        return _over_channels(low, node, x, 1 / count if mean else 1.0)
    if not maximum and len(over) == 1 and count <= _FEW:
        return _by_parts(low, node, x, over[0], 1 / count if mean else 1.0)
    return _by_pooling(low, node, x, over, maximum=maximum, factor=1 / count if mean else 1.0)


def _dimensions(given: Any, dims: int) -> list[int]:
    if not isinstance(given, int | list | tuple) or given == []:
        raise Unsupported("a reduction over all numbers of a batch")
    over = sorted(d % dims for d in ([given] if isinstance(given, int) else given))
    if 0 in over:
        raise Unsupported("a reduction over the samples of a batch")
    return over


def _defined(low: Lowering, node: Node, made: int, scale: float, maximum: bool) -> None:
    """The whole map's maximum or mean, times a number."""
    if not maximum and scale != 1:
        made = _scaled(low, made, scale)
    low.define(node.outputs[0], made)


def _scaled(low: Lowering, made: int, factor: float) -> int:
    scale = np.full(low.writer.shapes[made][0], factor, np.float32)
    return low.writer.affine(made, scale, np.zeros_like(scale), fills=False)


def _over_channels(low: Lowering, node: Node, x: Value, factor: float) -> None:
    """A convolution with one output channel."""
    path, channels = low.trace.calls[node.call].path, low.shape(x)[1]
    weight = np.full((1, channels, 1, 1), factor, np.float32)
    conv = Pending(path, low.native(x), weight, np.zeros(1, np.float32), Window(kernel=(1, 1)), 1)
    low.define(node.outputs[0], Moved(low.write_plain(conv), numbered(low.shape(node.outputs[0])[1:])))  # type: ignore[arg-type]


def vector_norm(low: Lowering, node: Node) -> None:
    """The root of the sum of squares over any dimensions but that of the samples."""
    x, shape, last, out = node.args[0], low.shape(node.args[0]), low.channels_last(node.args[0]), node.outputs[0]
    over, dims = _dimensions(node.argument(2, "dim", None), len(shape)), len(shape)
    if node.argument(1, "ord", 2) != 2 or node.kwargs.get("dtype") not in (None, torch.float32) or out is None:
        raise Unsupported("a norm that is not the root of a sum of squares")
    read = low.shaped(x, plane_shape(shape)) if last is None else low.written(last)
    square, pixels = low.writer.multiply(read, read), math.prod(low.writer.shapes[read][1:])
    if dims == 4 and over == ([2, 3] if last is None else [1, 2]):
        made = _scaled(low, low.writer.adaptive(square, (1, 1), maximum=False), pixels)
    elif dims == 4 and over == ([1] if last is None else [3]):
        weight = np.ones((1, low.writer.shapes[read][0], 1, 1), np.float32)
        made = low.writer.conv(square, weight, np.zeros(1, np.float32), Window(kernel=(1, 1)))
    elif last is None:
        made = _pooled(low, Moved(square, numbered(shape[1:])), over, maximum=False, factor=1.0)
    else:
        raise Unsupported("a norm over neither the pixels nor the channels")
    low.define(out, Moved(low.writer.power(made, 0.5), numbered(low.shape(out)[1:])))


def _by_parts(low: Lowering, node: Node, x: Value, dim: int, factor: float) -> None:
    moved, shape = low.moved(x), low.shape(node.outputs[0])  # type: ignore[arg-type]
    planes = (math.prod(shape[1:-2]), shape[-2], shape[-1]) if len(shape) > 3 else (math.prod(shape[1:]), 1, 1)
    parts = [arranged(low.writer, moved.base, index, planes) for index in moved.index.unbind(dim - 1)]
    made = parts[0]
    for part in parts[1:]:
        made = low.writer.add(made, part)
    made = made if factor == 1 else _scaled(low, made, factor)
    low.define(node.outputs[0], Moved(made, numbered(shape[1:])))


def _by_pooling(low: Lowering, node: Node, x: Value, over: list[int], *, maximum: bool, factor: float) -> None:
    made = _pooled(low, low.moved(x), over, maximum=maximum, factor=factor)
    shape = low.shape(node.outputs[0])  # type: ignore[arg-type]
    low.define(node.outputs[0], Moved(made, numbered(shape[1:])))


def _pooled(low: Lowering, moved: Moved, over: list[int], *, maximum: bool, factor: float) -> int:
    """What is reduced as the rows of a map of one channel, under one window; a sum of everything as a product."""
    sizes = moved.index.shape
    kept = [d for d in range(len(sizes)) if d + 1 not in over]
    rows, columns = (math.prod(sizes[d] for d in some) for some in ([d - 1 for d in over], kept))
    if columns == 1 and not maximum:
        flat = arranged(low.writer, moved.base, moved.index, (rows, 1, 1))
        return low.writer.linear(flat, np.full((1, rows), factor, np.float32), np.zeros(1, np.float32))
    if rows > _MOST:
        raise Unsupported(f"a sum or a maximum over more than {_MOST} numbers")
    index = moved.index.permute([*(d - 1 for d in over), *kept])
    upright = arranged(low.writer, moved.base, index, (1, rows, columns))
    inverse = None if maximum else np.full((1, columns), factor, np.float32)
    return low.writer.pool(upright, Window(kernel=(rows, 1)), (1, columns), inverse)


def softmax(low: Lowering, node: Node) -> None:
    """Over one dimension, which becomes the rows of a map of one channel; or the logarithm of that."""
    x, dim = node.args[:2]
    dims = len(low.shape(x))
    (over,) = _dimensions(dim, dims)
    if node.argument(2, "half_to_float", False):
        raise Unsupported("a softmax in another precision")
    kept = [d for d in range(1, dims) if d != over]
    moved, order = low.moved(x), [d - 1 for d in (over, *kept)]
    index = moved.index.permute(order)
    shape = (1, low.shape(x)[over], math.prod(low.shape(x)[d] for d in kept))
    rows = arranged(low.writer, moved.base, index, shape)
    made = low.writer.softmax(rows, logarithm=node.base_op == "_log_softmax")
    back = numbered(index.shape).permute([order.index(d) for d in range(dims - 1)])
    low.define(node.outputs[0], Moved(made, back))
