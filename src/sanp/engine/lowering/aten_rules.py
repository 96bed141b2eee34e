"""One rule for each aten operator that a program can express.

A rule is given a lowering and a node; it defines the node's output there, or raises :class:`Unsupported`.
"""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.gate_weights import floats
from sanp.engine.lowering.lowering import Lowering, Rule
from sanp.engine.lowering.shapes import Floats, Window, pair, sample_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value


def _argument(node: Node, position: int, name: str, default: Any) -> Any:
    """An argument that may have been given by position, by name, or not at all."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _convolution(low: Lowering, node: Node) -> None:
    low.define(node.outputs[0], low.convolution(node))


def _batch_norm(low: Lowering, node: Node) -> None:
    x, weight, bias, mean, var = node.args[:5]
    training = node.args[5] if node.op == "native_batch_norm" else False
    if training or not isinstance(mean, Tensor):
        raise Unsupported("a batch norm that uses the statistics of the batch")
    eps = node.args[-1]
    scale = (var.double() + eps).rsqrt() * (1.0 if weight is None else weight.double())
    shift = (0.0 if bias is None else bias.double()) - mean.double() * scale
    low.define(node.outputs[0], low.scale_and_shift(x, floats(scale), floats(shift), fills=True))


def _linear(low: Lowering, node: Node) -> None:
    bias, x, matrix = node.args[:3] if node.op == "addmm" else (None, *node.args[:2])
    if not isinstance(matrix, Tensor) or isinstance(bias, Value) or not isinstance(x, Value):
        raise Unsupported("a product of two features")
    if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1 or matrix.dtype != torch.float32:
        raise Unsupported("a scaled or reduced-precision product")
    if low.shape(x)[0] != low.shape(low.trace.inputs[0])[0]:
        raise Unsupported("a product over more rows than samples")
    shift = np.zeros(matrix.shape[1], np.float32) if bias is None else np.broadcast_to(floats(bias), matrix.shape[1:])
    low.define(node.outputs[0], low.writer.linear(low.native(x), floats(matrix).T, shift))


def _activation(kind: str) -> Rule:
    def rule(low: Lowering, node: Node) -> None:
        act = Activation(kind)
        if kind == "leaky":
            act = Activation(kind, float(_argument(node, 1, "negative_slope", 0.01)))
        elif kind == "elu":
            if _argument(node, 2, "scale", 1) != 1 or _argument(node, 3, "input_scale", 1) != 1:
                raise Unsupported("a scaled elu")
            act = Activation(kind, float(_argument(node, 1, "alpha", 1.0)))
        elif kind == "gelu" and node.kwargs.get("approximate", "none") == "tanh":
            act = Activation("gelu_tanh")
        low.define(node.outputs[0], low.activate(node.args[0], act))

    return rule


def _clip(low: Lowering, node: Node, *, lowest: float = -np.inf, highest: float = np.inf) -> None:
    bounds = (_argument(node, 1, "min", lowest), _argument(node, 2, "max", highest))
    if node.base_op == "hardtanh":
        bounds = (_argument(node, 1, "min_val", -1.0), _argument(node, 2, "max_val", 1.0))
    bounds = (lowest if bounds[0] is None else bounds[0], highest if bounds[1] is None else bounds[1])
    if not all(isinstance(bound, int | float) for bound in bounds) or bounds[0] > bounds[1]:
        raise Unsupported("a clamp between tensors")
    low.define(node.outputs[0], low.activate(node.args[0], Activation("clip", float(bounds[0]), float(bounds[1]))))


def _prelu(low: Lowering, node: Node) -> None:
    x, weight = node.args
    if not isinstance(weight, Tensor):
        raise Unsupported("slopes that depend on the input")
    slope = np.ascontiguousarray(np.broadcast_to(floats(weight.reshape(-1)), (low.shape(x)[1],)))
    low.define(node.outputs[0], low.activate(x, Activation("prelu", slope=slope)))


def _by_channel(low: Lowering, value: Value, constant: Any) -> Floats:
    """A number, or a tensor of one number for each channel, as an array of one number for each channel."""
    channels, dims = low.shape(value)[1], len(low.shape(value))
    if isinstance(constant, int | float):
        return np.full(channels, constant, np.float32)
    spread = (
        constant.reshape((1,) * (dims - constant.dim()) + tuple(constant.shape)) if constant.dim() <= dims else constant
    )
    if spread.dim() != dims or spread.numel() != spread.shape[1] or spread.shape[1] not in (1, channels):
        raise Unsupported("arithmetic with a constant that is not one number a channel")
    return np.ascontiguousarray(np.broadcast_to(floats(spread.reshape(-1)), (channels,)))


def _add(low: Lowering, node: Node, *, sign: float = 1.0) -> None:
    a, b = node.args[:2]
    alpha = float(node.kwargs.get("alpha", 1)) * sign
    if isinstance(a, Value) and isinstance(b, Value):
        if alpha != 1 or low.shape(a) != low.shape(b):
            raise Unsupported("a difference, or a sum of different shapes")
        low.define(node.outputs[0], low.add_values(a, b))
        return
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    if not isinstance(a, Value) and alpha != 1:
        raise Unsupported("a constant minus features")
    shift = _by_channel(low, value, constant) * np.float32(alpha)
    low.define(node.outputs[0], low.scale_and_shift(value, np.ones_like(shift), shift, fills=True))


def _multiply(low: Lowering, node: Node) -> None:
    a, b = node.args[:2]
    if isinstance(a, Value) and isinstance(b, Value):
        if sample_shape(low.shape(a))[1:] == (1, 1):
            a, b = b, a
        first, second = sample_shape(low.shape(a)), sample_shape(low.shape(b))
        if (
            first[0] != second[0]
            or (second[1:] != (1, 1) and first != second)
            or len(low.shape(a)) != len(low.shape(b))
        ):
            raise Unsupported("a product of these shapes")
        low.define(node.outputs[0], low.writer.multiply(low.native(a), low.native(b)))
        return
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    scale = _by_channel(low, value, constant)
    low.define(node.outputs[0], low.scale_and_shift(value, scale, np.zeros_like(scale), fills=False))


def _divide(low: Lowering, node: Node) -> None:
    a, b = node.args[:2]
    if not isinstance(a, Value) or isinstance(b, Value) or node.kwargs.get("rounding_mode") is not None:
        raise Unsupported("division by features")
    scale = np.float32(1) / _by_channel(low, a, b)
    low.define(node.outputs[0], low.scale_and_shift(a, scale, np.zeros_like(scale), fills=False))


def _max_pool(low: Lowering, node: Node) -> None:
    x, kernel = node.args[:2]
    window = Window(
        kernel=pair(kernel),
        stride=pair(_argument(node, 2, "stride", None) or kernel),
        padding=pair(_argument(node, 3, "padding", 0)),
        dilation=pair(_argument(node, 4, "dilation", 1)),
    )
    _, *size = sample_shape(low.shape(node.outputs[0]))  # type: ignore[arg-type]
    low.define(node.outputs[0], low.writer.pool(low.native(x), window, (size[0], size[1])))


def _average_pool(low: Lowering, node: Node) -> None:
    x, kernel = node.args[:2]
    window = Window(
        kernel=pair(kernel),
        stride=pair(_argument(node, 2, "stride", None) or kernel),
        padding=pair(_argument(node, 3, "padding", 0)),
    )
    ones = torch.ones(1, 1, *low.shape(x)[2:])
    options = {"count_include_pad": _argument(node, 5, "count_include_pad", True)}
    options |= {"ceil_mode": _argument(node, 4, "ceil_mode", False)}
    options |= {"divisor_override": _argument(node, 6, "divisor_override", None)}
    mean = torch.nn.functional.avg_pool2d(ones, window.kernel, window.stride, window.padding, **options)
    total = torch.nn.functional.avg_pool2d(
        ones, window.kernel, window.stride, window.padding, ceil_mode=options["ceil_mode"], divisor_override=1
    )
    inverse = floats(mean / total)[0, 0]
    low.define(node.outputs[0], low.writer.pool(low.native(x), window, inverse.shape, inverse))


def _adaptive(low: Lowering, node: Node, *, maximum: bool) -> None:
    _, *size = sample_shape(low.shape(node.outputs[0]))  # type: ignore[arg-type]
    if len(low.shape(node.args[0])) != 4:
        raise Unsupported("adaptive pooling that is not over a map")
    low.define(node.outputs[0], low.writer.adaptive(low.native(node.args[0]), (size[0], size[1]), maximum=maximum))


def _over_positions(low: Lowering, node: Node, *, maximum: bool) -> None:
    x = node.args[0]
    dims = len(low.shape(x))
    over = _argument(node, 1, "dim", None)
    if over is None or sorted(d % dims for d in ([over] if isinstance(over, int) else over)) != list(range(2, dims)):
        raise Unsupported(f"{node.op} that is not over all positions")
    if node.kwargs.get("dtype") not in (None, torch.float32) or dims < 3:
        raise Unsupported(f"{node.op} in another precision, or of a vector")
    low.define(node.outputs[0], low.writer.adaptive(low.native(x), (1, 1), maximum=maximum))


def _concatenate(low: Lowering, node: Node) -> None:
    parts, dim = node.args[0], _argument(node, 1, "dim", 0)
    if not all(isinstance(part, Value) for part in parts) or dim % len(low.shape(parts[0])) != 1:
        raise Unsupported("a concatenation that is not of channels of features")
    low.define(node.outputs[0], low.writer.concat([low.native(part) for part in parts]))


def _same(low: Lowering, node: Node) -> None:
    if node.kwargs.get("dtype") not in (None, torch.float32):
        raise Unsupported("another precision")
    low.define(node.outputs[0], low.native(node.args[0]))


def _move(low: Lowering, node: Node) -> None:
    if len(node.inputs()) != 1:
        raise Unsupported(f"{node.op} of several features")
    low.move(node)


# Operators that only move numbers about: the lowering runs them on the numbers of the elements.
MOVES = (
    "view _unsafe_view reshape permute transpose slice select split split_with_sizes chunk squeeze unsqueeze flip "
    "index_select narrow pixel_unshuffle channel_shuffle native_channel_shuffle unflatten clone detach alias "
    "contiguous lift_fresh"
).split()

RULES: dict[str, Rule] = {
    "convolution": _convolution,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "addmm": _linear,
    "mm": _linear,
    "relu": _activation("relu"),
    "leaky_relu": _activation("leaky"),
    "silu": _activation("silu"),
    "gelu": _activation("gelu"),
    "hardswish": _activation("hardswish"),
    "hardsigmoid": _activation("hardsigmoid"),
    "sigmoid": _activation("sigmoid"),
    "tanh": _activation("tanh"),
    "elu": _activation("elu"),
    "hardtanh": _clip,
    "clamp": _clip,
    "relu6": functools.partial(_clip, lowest=0.0, highest=6.0),
    "clamp_min": _clip,
    "_prelu_kernel": _prelu,
    "add": _add,
    "sub": functools.partial(_add, sign=-1.0),
    "mul": _multiply,
    "div": _divide,
    "max_pool2d_with_indices": _max_pool,
    "max_pool2d": _max_pool,
    "avg_pool2d": _average_pool,
    "_adaptive_avg_pool2d": functools.partial(_adaptive, maximum=False),
    "adaptive_max_pool2d": functools.partial(_adaptive, maximum=True),
    "mean": functools.partial(_over_positions, maximum=False),
    "amax": functools.partial(_over_positions, maximum=True),
    "cat": _concatenate,
    "_to_copy": _same,
    **dict.fromkeys(MOVES, _move),
}
