"""Constants with a number for each element, such as codes of positions: values of a program like any others."""

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.arranging import numbered
from sanp.engine.lowering.broadcasting import defined, spread_to
from sanp.engine.lowering.elementwise import constant_of
from sanp.engine.lowering.gate_weights import floats
from sanp.engine.lowering.known import Moved
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.shapes import plane_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value

_MOST = 1 << 22
"""elements of a constant"""


def constant_value(low: Lowering, constant: Tensor, like: Value, shape: torch.Size) -> int:
    """A constant, spread to a shape with a row for each sample, as a number of the program.

    It is the bias of a linear layer without weights, of one number of ``like``.
    """
    if constant.is_complex() or not bool(constant.isfinite().all()):
        raise Unsupported("a constant that is not finite")
    rows = constant.float().expand(shape)
    if shape[1:].numel() > _MOST or not torch.equal(rows, rows[:1].expand_as(rows)):
        raise Unsupported("a constant that differs by sample, or is very large")
    one = low.writer.adaptive(low.writer.channels(low.native(like), [0]), (1, 1), maximum=False)
    bias = floats(rows[0].reshape(-1))
    made = low.writer.linear(one, np.zeros((len(bias), 1), np.float32), bias)
    return low.arranged(Moved(made, numbered(shape[1:])), plane_shape(shape))


def with_constant(low: Lowering, node: Node) -> None:
    """A sum, difference, product or quotient of features and a constant, by channel where that is enough."""
    (value,) = node.inputs()
    shape, last = low.shape(value), low.channels_last(value) is not None
    try:
        scale, shift = constant_of(node, shape, last=last)
    except Unsupported:
        return _by_element(low, node, value)
    made = low.scale_and_shift(value, scale, shift, fills=node.base_op in ("add", "sub"))
    return low.define(node.outputs[0], made)


def _by_element(low: Lowering, node: Node, value: Value) -> None:
    a, b = node.args[:2]
    constant, out = b if isinstance(a, Value) else a, node.outputs[0]
    alpha = float(node.kwargs.get("alpha", 1)) * (-1.0 if node.base_op == "sub" else 1.0)
    if not isinstance(constant, Tensor) or node.kwargs.get("rounding_mode") is not None or out is None:
        raise Unsupported("arithmetic with a constant that is not one number a channel")
    shape = low.shape(out)
    features = spread_to(low, value, shape)
    channels = low.writer.shapes[features][0]
    if node.base_op in ("add", "sub"):
        constant, factor = (constant * alpha, 1.0) if isinstance(a, Value) else (constant, alpha)
        if factor != 1:
            scale = np.full(channels, factor, np.float32)
            features = low.writer.affine(features, scale, np.zeros_like(scale), fills=False)
        made = low.writer.add(features, constant_value(low, constant, value, shape))
    elif node.base_op == "div" and isinstance(a, Value):
        made = low.writer.multiply(features, constant_value(low, 1 / constant, value, shape))
    else:
        features = low.writer.power(features, -1.0) if node.base_op == "div" else features
        made = low.writer.multiply(features, constant_value(low, constant, value, shape))
    defined(low, node, made, shape)
