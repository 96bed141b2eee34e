"""Rules for operators that are written as several others: gated linear units, scaled ELUs, the larger of two values."""

import numpy as np
import torch

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.arranging import numbered
from sanp.engine.lowering.broadcasting import common_shape, defined, spread_to
from sanp.engine.lowering.known import Moved
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.shapes import plane_shape, sample_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value


def gated_linear_unit(low: Lowering, node: Node) -> None:
    """The first half of a dimension times a sigmoid of the second."""
    x, dim = node.args[0], node.argument(1, "dim", -1) % len(low.shape(node.args[0]))
    if dim == 0:
        raise Unsupported("a gated linear unit over the samples of a batch")
    moved, shape = low.moved(x), low.shape(node.outputs[0])  # type: ignore[arg-type]
    halves = moved.index.chunk(2, dim - 1)
    first, second = (low.arranged(Moved(moved.base, half), plane_shape(shape)) for half in halves)
    defined(low, node, low.writer.multiply(first, low.writer.activation(second, Activation("sigmoid"))), shape)


def scaled_elu(low: Lowering, node: Node) -> None:
    """scale · x, and below zero alpha · scale · (exp(inside · x) - 1): what ELU, SELU and CELU are."""
    x = node.args[0]
    alpha, scale = node.argument(1, "alpha", 1.0), node.argument(2, "scale", 1.0)
    inside = node.argument(3, "input_scale", 1.0) if node.base_op != "celu" else 1 / alpha
    act = Activation("elu", float(alpha * inside))
    if inside == scale == 1:
        return low.define(node.outputs[0], low.activate(x, act))
    if not inside > 0:
        raise Unsupported("an elu that turns its input around")
    channels = low.channel_count(x)
    before, after = (np.full(channels, factor, np.float32) for factor in (inside, scale / inside))
    given = low.writer.affine(low.native(x), before, np.zeros_like(before), fills=False)
    made = low.writer.affine(low.writer.activation(given, act), after, np.zeros_like(after), fills=False)
    return low.define(node.outputs[0], made)


def larger(low: Lowering, node: Node, *, sign: float) -> None:
    """The larger of two values, or with a ``sign`` of -1 the smaller: a + max(b - a, 0), a - max(a - b, 0)."""
    a, b = node.args[:2]
    if not isinstance(a, Value) or not isinstance(b, Value):
        raise Unsupported(f"the {node.base_op} of a value and a constant")
    shape = common_shape(low, a, b)
    left, right = spread_to(low, a, shape), spread_to(low, b, shape)
    minus = np.full(low.writer.shapes[left][0], -1, np.float32)

    def negative(value: int) -> int:
        return low.writer.affine(value, minus, np.zeros_like(minus), fills=False)

    gap = low.writer.add(right, negative(left)) if sign > 0 else low.writer.add(left, negative(right))
    more = low.writer.activation(gap, Activation("relu"))
    defined(low, node, low.writer.add(left, more if sign > 0 else negative(more)), shape)


def same_number(low: Lowering, node: Node) -> None:
    """A map of one number, as large as another."""
    x, number = node.args[0], {"zeros_like": 0.0, "ones_like": 1.0}.get(node.op, node.argument(1, "fill_value"))
    if node.kwargs.get("dtype") not in (None, torch.float32) or not isinstance(number, int | float):
        raise Unsupported("constants in another precision, or that depend on the input")
    shape = low.shape(x)
    made = low.constant(x, sample_shape(shape)[0], float(number))
    low.define(node.outputs[0], made if len(shape) < 5 else Moved(made, numbered(shape[1:])))
