"""Rules for arithmetic of two features whose shapes differ or have many dimensions, quotients and powers."""

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.arranging import numbered
from sanp.engine.lowering.elementwise import channel_constant
from sanp.engine.lowering.known import ChannelsLast, Moved
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.shapes import Shape, plane_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value

_POWERS = {"sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}


def common_shape(low: Lowering, a: Value, b: Value) -> torch.Size:
    """The shape of a sum or product of two values, whose samples lie in the first dimension of both."""
    if len(low.shape(a)) != len(low.shape(b)):
        raise Unsupported("arithmetic of values with different numbers of dimensions")
    return torch.Size(torch.broadcast_shapes(low.shape(a), low.shape(b)))


def spread_to(low: Lowering, value: Value, shape: torch.Size) -> int:
    """A value with its elements repeated to a shape, as maps."""
    if low.shape(value) == shape and len(shape) < 5:
        return low.native(value)
    moved = low.moved(value)
    return low.arranged(Moved(moved.base, moved.index.expand(shape[1:])), plane_shape(shape))


def defined(low: Lowering, node: Node, made: int, shape: torch.Size) -> None:
    """Says what a node's output of this shape is, given as maps."""
    low.define(node.outputs[0], made if len(shape) < 5 else Moved(made, numbered(shape[1:])))


def product(low: Lowering, node: Node, a: Value, b: Value) -> None:
    """a · b; where b has one number for each map it need not be spread."""
    shape = common_shape(low, a, b)
    for x, y in ((a, b), (b, a)):
        last = low.channels_last(x)
        if last is not None and low.shape(y)[1:].numel() == low.shape(y)[-1] == shape[-1] and low.shape(x) == shape:
            each = low.shaped(y, (shape[-1], 1, 1))
            return low.define(node.outputs[0], ChannelsLast(low.writer.multiply(low.written(last), each)))
        if low.shape(x) == shape and _one_each(plane_shape(low.shape(y)), plane_shape(shape)):
            made = low.writer.multiply(spread_to(low, x, shape), spread_to(low, y, low.shape(y)))
            return defined(low, node, made, shape)
    return defined(low, node, low.writer.multiply(spread_to(low, a, shape), spread_to(low, b, shape)), shape)


def _one_each(small: Shape, large: Shape) -> bool:
    return small == (large[0], 1, 1)


def quotient(low: Lowering, node: Node) -> None:
    """a / b of two features: a times the inverse of b."""
    a, b = node.args[:2]
    if not isinstance(a, Value) or not isinstance(b, Value) or node.kwargs.get("rounding_mode") is not None:
        raise Unsupported("division of a constant by features")
    shape = common_shape(low, a, b)
    inverse = low.writer.power(spread_to(low, b, shape), -1.0)
    defined(low, node, low.writer.multiply(spread_to(low, a, shape), inverse), shape)


def power(low: Lowering, node: Node) -> None:
    """Every element to a constant power."""
    x = node.args[0]
    exponent = _POWERS.get(node.base_op, node.args[1] if len(node.args) > 1 else None)
    exponent = exponent.item() if isinstance(exponent, Tensor) and exponent.numel() == 1 else exponent
    if not isinstance(x, Value) or not isinstance(exponent, int | float):
        raise Unsupported("a power that depends on the input")
    read = low.native(x)
    low.define(node.outputs[0], low.writer.multiply(read, read) if exponent == 2 else low.writer.power(read, exponent))


def sum_with_product(low: Lowering, node: Node) -> None:
    """a + value · b · c, as torch's addcmul has it, where features are b or c and the others constants by channel."""
    a, *factors = node.args[:3]
    value, *more = node.inputs()
    if more or a is value:
        raise Unsupported("a sum with a product of several features")
    last = low.channels_last(value) is not None
    (constant,) = (each for each in factors if each is not value)
    scale, shift = (channel_constant(each, low.shape(value), last=last) for each in (constant, a))
    made = low.scale_and_shift(value, scale * np.float32(node.kwargs.get("value", 1)), shift, fills=True)
    low.define(node.outputs[0], made)


def sum_of(low: Lowering, node: Node, a: Value, b: Value, factor: float) -> None:
    """a + factor · b."""
    shape = common_shape(low, a, b)
    other = spread_to(low, b, shape)
    if factor != 1:
        scale = np.full(low.writer.shapes[other][0], factor, np.float32)
        other = low.writer.affine(other, scale, np.zeros_like(scale), fills=False)
    defined(low, node, low.writer.add(spread_to(low, a, shape), other), shape)
