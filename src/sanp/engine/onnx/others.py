"""Operators that few networks have, in ONNX's: elements in another order, norms by statistics, weights of rows."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from sanp.engine.lowering.shapes import Between, Floats, Shape
from sanp.engine.onnx.graph import OnnxGraph
from sanp.engine.onnx.live import Live, LiveValues


def gathered(values: LiveValues, x: int, rows: Sequence[int], columns: Sequence[int], shape: Shape) -> Live:
    """A value of this shape of all channels: element rows[c] + columns[p] of x, or 0, as a writer's gather has it."""
    graph, pixels = values.graph, int(np.prod(values.shapes[x][1:]))
    row, column = np.array(rows)[:, None], np.array(columns)[None]
    last = int(np.prod(values.shapes[x]))
    places = np.where((row < 0) | (column < 0), last, row + column)
    flat = graph.reshape(values.dense(x), [1, -1])
    if bool((places == last).any()):
        flat = graph.node("Concat", flat, graph.floats(np.zeros((1, 1))), axis=1)
    y = graph.reshape(graph.node("Gather", flat, graph.ints(places.reshape(-1).tolist()), axis=1), [1, *shape])
    before, there = values.mask(x), column[column >= 0]
    if before is None or len(rows) != shape[0] or len(set((there // pixels).tolist())) != 1:
        return Live(y)
    source = row[:, 0] // pixels + int(there[0]) // pixels
    return Live(y, mask=cache(lambda: graph.node("Gather", before(), graph.ints(source.tolist()), axis=1)))


def normalised(graph: OnnxGraph, x: str, over: Sequence[int], scale: Floats, shift: Floats, eps: float) -> str:
    """A tensor (1, C, H, W) with a mean of 0 and a deviation of 1 over some dimensions, then scaled and shifted."""
    d = graph.node("Sub", x, graph.node("ReduceMean", x, axes=over, keepdims=1))
    var = graph.node("ReduceMean", graph.node("Mul", d, d), axes=over, keepdims=1)
    y = graph.node("Div", d, graph.node("Sqrt", graph.node("Add", var, graph.floats(np.float32(eps)))))
    y = graph.node("Mul", y, graph.floats(scale.reshape(1, -1, 1, 1)))
    return graph.node("Add", y, graph.floats(shift.reshape(1, -1, 1, 1)))


def as_matrix(between: Between, size: int) -> Floats:
    """(results, size): the weights of the two rows that each result lies between."""
    matrix = np.zeros((len(between.first), size), np.float32)
    places = np.arange(len(between.first))
    matrix[places, list(between.first)] += 1 - between.weight
    matrix[places, list(between.second)] += between.weight
    return matrix
