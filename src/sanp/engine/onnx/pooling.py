"""Poolings in ONNX's operators."""

import numpy as np

from sanp.engine.lowering.shapes import Floats, Pair, Window
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.onnx.graph import OnnxGraph


def pooled(graph: OnnxGraph, tensor: str, extent: Pair, window: Window, size: Pair, inverse: Floats | None) -> str:
    """Windows over a tensor of maps of this extent, to maps of this size, as :meth:`Writer.pool` explains them.

    The map is padded first, so that windows over the edge mean the same in every runtime.
    """
    steps = zip(size, window.stride, window.dilation, window.kernel, strict=True)
    reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in steps]
    after = [max(0, r - e - p) for r, e, p in zip(reach, extent, window.padding, strict=True)]
    pads = graph.ints([0, 0, *window.padding, 0, 0, *after])
    edge = graph.floats(np.float32(-np.inf if inverse is None else 0))
    y = graph.node("Pad", tensor, pads, edge)
    options = {"kernel_shape": window.kernel, "strides": window.stride}
    if inverse is None:
        return graph.node("MaxPool", y, **options, dilations=window.dilation)
    taps = window.kernel[0] * window.kernel[1]
    if taps == 1 and window.stride == (1, 1):  # ONNX Runtime makes one operator of both, and then refuses it
        return graph.node("Mul", y, graph.floats(inverse))
    return graph.node("Mul", graph.node("AveragePool", y, **options), graph.floats(inverse * np.float32(taps)))


def pooled_to(graph: OnnxGraph, tensor: str, extent: Pair, size: Pair, *, maximum: bool) -> str:
    """Maps of this extent to maps of this size, which may be larger, by adaptive pooling."""
    if size == (1, 1):
        return graph.node("ReduceMax" if maximum else "ReduceMean", tensor, axes=[2, 3], keepdims=1)
    if not (size[0] % extent[0] or size[1] % extent[1]):  # every pixel several times
        for axis, before, after in ((2, extent[0], size[0]), (3, extent[1], size[1])):
            places = [place * before // after for place in range(after)]
            tensor = tensor if before == after else graph.node("Gather", tensor, graph.ints(places), axis=axis)
        return tensor
    if extent[0] % size[0] or extent[1] % size[1]:
        if maximum:
            raise Unsupported("adaptive pooling with windows of different sizes")
        rows, columns = (_means(before, after) for before, after in zip(extent, size, strict=True))
        return graph.node("MatMul", graph.node("MatMul", graph.floats(rows), tensor), graph.floats(columns.T))
    kernel = [extent[0] // size[0], extent[1] // size[1]]
    return graph.node("MaxPool" if maximum else "AveragePool", tensor, kernel_shape=kernel, strides=kernel)


def _means(before: int, after: int) -> Floats:
    """(after, before): the weights of the rows in each window of an adaptive average."""
    matrix = np.zeros((after, before), np.float32)
    for place in range(after):
        first, end = place * before // after, -(-(place + 1) * before // after)
        matrix[place, first:end] = 1 / (end - first)
    return matrix
