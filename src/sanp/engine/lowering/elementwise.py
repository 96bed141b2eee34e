"""What a traced operator does to each element of a map by itself: an activation, or a scale and a shift by channel."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.gate_weights import floats
from sanp.engine.lowering.shapes import Floats
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value

_PLAIN = {"relu": "relu", "silu": "silu", "hardswish": "hardswish", "hardsigmoid": "hardsigmoid"}
_PLAIN |= {"sigmoid": "sigmoid", "tanh": "tanh", "mish": "mish"}
_CLIPS = {"hardtanh": (-1.0, 1.0), "relu6": (0.0, 6.0), "clamp": (-np.inf, np.inf), "clamp_min": (-np.inf, np.inf)}
BATCH_NORMS = ("native_batch_norm", "_native_batch_norm_legit_no_training")
ACTIVATION_OPERATORS = (*_PLAIN, *_CLIPS, "leaky_relu", "abs", "elu", "gelu", "_prelu_kernel")
"""names of the aten operators that :func:`activation_of` knows"""


def activation_of(node: Node, channels: int) -> Activation:
    """The activation that a node applies to a map of so many channels."""
    name = node.base_op
    if name in _PLAIN:
        return Activation(_PLAIN[name])
    if name in _CLIPS:
        return _clip(node, *_CLIPS[name])
    if name == "abs":
        return Activation("leaky", -1.0)
    if name == "leaky_relu":
        return Activation("leaky", float(node.argument(1, "negative_slope", 0.01)))
    if name == "gelu":
        return Activation("gelu_tanh" if node.kwargs.get("approximate", "none") == "tanh" else "gelu")
    if name == "elu":
        if node.argument(2, "scale", 1) != 1 or node.argument(3, "input_scale", 1) != 1:
            raise Unsupported("a scaled elu")
        return Activation("elu", float(node.argument(1, "alpha", 1.0)))
    if name == "_prelu_kernel":
        if not isinstance(node.args[1], Tensor):
            raise Unsupported("slopes that depend on the input")
        slope = np.broadcast_to(floats(node.args[1].reshape(-1)), (channels,))
        return Activation("prelu", slope=np.ascontiguousarray(slope))
    raise Unsupported(f"the activation {node.op}")


def _clip(node: Node, lowest: float, highest: float) -> Activation:
    names = ("min_val", "max_val") if node.base_op == "hardtanh" else ("min", "max")
    low, high = node.argument(1, names[0], lowest), node.argument(2, names[1], highest)
    low, high = -np.inf if low is None else low, np.inf if high is None else high
    if not isinstance(low, int | float) or not isinstance(high, int | float) or low > high:
        raise Unsupported("a clamp between tensors")
    return Activation("clip", float(low), float(high))


def batch_norm_of(node: Node) -> tuple[Floats, Floats]:
    """The scale and the shift of a batch norm in evaluation."""
    _, weight, bias, mean, var = node.args[:5]
    training = node.args[5] if node.op == "native_batch_norm" else False
    if training or not isinstance(mean, Tensor):
        raise Unsupported("a batch norm that uses the statistics of the batch")
    scale = (var.double() + node.args[-1]).rsqrt() * (1.0 if weight is None else weight.double())
    shift = (0.0 if bias is None else bias.double()) - mean.double() * scale
    return floats(scale), floats(shift)


def norm_weights(weight: Tensor | None, bias: Tensor | None, channels: int) -> tuple[Floats, Floats]:
    """The scale and the shift of a norm after its statistics, which may have neither."""
    scale = np.ones(channels, np.float32) if weight is None else floats(weight)
    return scale, np.zeros(channels, np.float32) if bias is None else floats(bias)


def constant_of(node: Node, shape: torch.Size, *, last: bool = False) -> tuple[Floats, Floats]:
    """The scale and the shift of a sum, difference, product or quotient of a value of this shape and a constant.

    ``last`` says that the value has its channels in the last dimension.
    """
    a, b = node.args[:2]
    constant, name = channel_constant(b if isinstance(a, Value) else a, shape, last=last), node.base_op
    if name in ("add", "sub"):
        alpha = float(node.kwargs.get("alpha", 1)) * (-1.0 if name == "sub" else 1.0)
        one, factor = np.ones_like(constant), np.float32(alpha)
        return (one, constant * factor) if isinstance(a, Value) else (one * factor, constant)
    if name == "div" and (not isinstance(a, Value) or node.kwargs.get("rounding_mode") is not None):
        raise Unsupported("division by features")
    scale = np.float32(1) / constant if name == "div" else constant
    return scale, np.zeros_like(scale)


def channel_constant(constant: Any, shape: torch.Size, *, last: bool) -> Floats:
    """As :func:`by_channel`, for a value that may have its channels ``last``."""
    return by_channel(*(_channels_first(constant, shape) if last else (constant, shape)))


def _channels_first(constant: Any, shape: torch.Size) -> tuple[Any, torch.Size]:
    """A constant and a shape with their channels in the second dimension instead of the last."""
    first = torch.Size((shape[0], shape[-1], *shape[1:-1]))
    if not isinstance(constant, Tensor) or constant.numel() == 1:
        return constant, first
    if constant.numel() != constant.shape[-1]:
        raise Unsupported("arithmetic with a constant that is not one number a channel")
    return constant.reshape(-1, *(1,) * (len(shape) - 2)), first


def by_channel(constant: Any, shape: torch.Size) -> Floats:
    """A number, or a tensor of one number for each channel, as an array of one number for each channel."""
    channels, dims = shape[1], len(shape)
    if isinstance(constant, int | float):
        return np.full(channels, constant, np.float32)
    spread = constant.reshape((1,) * max(0, dims - constant.dim()) + tuple(constant.shape))
    if spread.dim() != dims or spread.numel() != spread.shape[1] or spread.shape[1] not in (1, channels):
        raise Unsupported("arithmetic with a constant that is not one number a channel")
    return np.ascontiguousarray(np.broadcast_to(floats(spread.reshape(-1)), (channels,)))
