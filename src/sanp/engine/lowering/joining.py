"""Rules for values that are put together, along channels or any other dimension, and for sums of such."""

import functools

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.arranging import numbered
from sanp.engine.lowering.constants import constant_value
from sanp.engine.lowering.known import Moved
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.shapes import sample_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value


def concatenate(low: Lowering, node: Node) -> None:
    """Along the channels as such; along others as elements of all parts in another order."""
    parts, dim = node.args[0], node.argument(1, "dim", 0)
    values = [part for part in parts if isinstance(part, Value)]
    if not values:
        raise Unsupported("a concatenation of constants")
    dims = len(low.shape(values[0]))
    dim %= dims
    parts = [part for part in parts if isinstance(part, Value) or part.numel()]
    if dim == 0:
        raise Unsupported("a concatenation of samples")
    if dim == 1 and dims > 1:
        numbers = [_channels_of(low, part, values[0]) for part in parts]
        return low.define(node.outputs[0], low.writer.concat(numbers))
    return _join(low, node, parts, functools.partial(torch.cat, dim=dim - 1))


def _channels_of(low: Lowering, part: Value | Tensor, like: Value) -> int:
    """A part of a concatenation of channels, which may be a constant."""
    if isinstance(part, Value):
        return low.native(part)
    if bool(part.any()):
        return constant_value(low, part, like, part.shape)
    return low.writer.channels(low.constant(like, low.shape(like)[1], 0.0), [0] * part.shape[1])


def stack(low: Lowering, node: Node) -> None:
    """Along a new dimension."""
    parts, dim = node.args[0], node.argument(1, "dim", 0)
    values = [part for part in parts if isinstance(part, Value)]
    if not values:
        raise Unsupported("a stack of constants")
    dim %= len(low.shape(values[0])) + 1
    if dim == 0:
        raise Unsupported("a stack of batches")
    _join(low, node, parts, functools.partial(torch.stack, dim=dim - 1))


def _join(low: Lowering, node: Node, parts: list[Value | Tensor], join: "functools.partial[Tensor]") -> None:
    like = next(part for part in parts if isinstance(part, Value))
    numbers = [
        low.native(part) if isinstance(part, Value) else constant_value(low, part, like, part.shape) for part in parts
    ]
    shapes = [low.writer.shapes[number] for number in numbers]
    if len({shape[1:] for shape in shapes}) > 1:
        numbers = [low.writer.flatten(number) for number in numbers]
    first, index = 0, []
    for part in parts:
        shape = (low.shape(part) if isinstance(part, Value) else part.shape)[1:]
        index.append(numbered(shape) + first)
        first += shape.numel()
    low.define(node.outputs[0], Moved(low.writer.concat(numbers), join(index)))


def total_of(low: Lowering, node: Node) -> None:
    """The sum or the mean of several values of one shape (found by patterns.py)."""
    parts, count = node.args
    made = low.native(parts[0])
    for part in parts[1:]:
        made = low.writer.add(made, low.native(part))
    if count != 1:
        scale = np.full(sample_shape(low.shape(parts[0]))[0], 1 / count, np.float32)
        made = low.writer.affine(made, scale, np.zeros_like(scale), fills=False)
    low.define(node.outputs[0], made)
