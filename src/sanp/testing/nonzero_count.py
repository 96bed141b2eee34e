"""A count of FLOPs that knows nothing of gates or traces: it runs a network and looks which channels are not zero.

A channel that is zero by chance would make the count wrong. So the network runs in double precision with random
weights, and activations that cut numbers off are replaced by ones that are zero at zero only. Differences are replaced
by sums: x - mean(x) is zero where x is the same everywhere, which no count by channels can know.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._python_dispatch import TorchDispatchMode

from sanp.gating.flops import conv_flops
from sanp.gating.network import GatedNetwork
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.spm.outside_norm import waiting_scale
from sanp.spm.recording import Gates
from sanp.tracing.graph import ConvolutionCall


@dataclass
class ConvCall:
    """One convolution as it ran: which channels of its input and of its output are not zero."""

    weight: torch.Size
    positions: int
    groups: int
    inputs: Tensor
    """(rows, C_in): which channels it read are not zero"""
    outputs: Tensor
    """(rows, C_out): which channels it put out are not zero"""
    finite: bool
    """whether all that it read is finite; NaN would count as not zero"""
    total: float
    """the sum of what it read, by which two runs can be compared"""

    def flops(self) -> Tensor:
        """(rows,): every group's live inputs times its live outputs."""
        rows = len(self.inputs)
        inputs, outputs = (side.double().reshape(rows, self.groups, -1).sum(2) for side in (self.inputs, self.outputs))
        return conv_flops(self.positions, inputs, prod(self.weight[2:]), outputs).sum(1)


class RandomGates(nn.Module):
    """In place of an SPM: every channel open with probability one half, at least one for each sample."""

    def __init__(self, channels: int, generator: torch.Generator) -> None:
        super().__init__()
        self.channels, self.generator = channels, generator

    def forward(self, x: Tensor) -> Gates:
        """New random gates for the input (N, C_in, ...)."""
        draws = torch.rand(len(x), self.channels, generator=self.generator)
        decision = ((draws > 0.5) | (draws == draws.amax(1, keepdim=True))).float()
        return Gates(torch.ones_like(decision), decision, decision)


def randomize(network: nn.Module, generator: torch.Generator) -> None:
    """Sets all parameters and batch statistics to random numbers, none of them zero, that keep features in range."""

    def positive(tensor: Tensor) -> Tensor:
        return torch.rand(tensor.shape, generator=generator) + 0.5

    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1 and parameter.is_floating_point():
                fan_in = max(1, parameter[0].numel())
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / fan_in**0.5)
            elif parameter.is_floating_point():
                parameter.copy_(positive(parameter))
        for module in network.modules():
            if isinstance(module, _NormBase) and module.running_var is not None and module.running_mean is not None:
                module.running_var.copy_(positive(module.running_var))
                module.running_mean.copy_(positive(module.running_mean) - 1)


class CountNonZero(TorchDispatchMode):
    """Collects the convolutions of a forward; see :func:`count`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[ConvCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        smooth = SMOOTH.get(name.removesuffix("_"))
        if smooth is not None:
            result = smooth(args)
            return args[0].copy_(result) if name.endswith("_") else result
        result = func(*args, **(kwargs or {}))
        if name in ("convolution", "_convolution"):  # the second is that of torch.jit.trace
            conv = ConvolutionCall(*args[:9])
            source, groups = conv.input, conv.groups
            positions = prod((source if conv.transposed else result).shape[2:])
            nothing_of_nothing = conv.bias is None and groups == source.shape[1] > 1  # depthwise: zero in, zero out
            outputs = nonzero_channels(result) if nothing_of_nothing else torch.ones(len(result), result.shape[1])
            finite = bool(torch.isfinite(source).all())
            total = float(source.double().sum())
            live = nonzero_channels(source)
            self.calls.append(ConvCall(conv.weight.shape, positions, groups, live, outputs, finite, total))
        return result


def nonzero_channels(features: Tensor) -> Tensor:
    """(N, C): whether a channel of the features (N, C, ...) has a number that is not zero."""
    return features.flatten(2).ne(0).any(2) if features.dim() > 2 else features.ne(0)


def _within(args: Any, low: Any, high: Any) -> Tensor:
    """Stands for a clamp: nothing but zero becomes zero. Bounds that exclude zero are kept."""
    x: Tensor = args[0]
    if any(isinstance(bound, Tensor) for bound in (low, high)):
        return torch.clamp(x, low, high)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return x.clamp(low, high)
    x = x.abs() if low == 0 else x.clone()
    return high * torch.tanh(x / high) if high else x  # still bounded: features must not grow beyond all bounds


def _bounds(args: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds among an operator's arguments, or else these defaults."""
    given = [*args[1:3], *(low, high)[len(args[1:3]) :]]
    return given[0], given[1]


SMOOTH: dict[str, Callable[[Any], Tensor]] = {
    "relu": lambda args: args[0].abs(),
    "hardtanh": lambda args: _within(args, *_bounds(args, -1, 1)),
    "clamp": lambda args: _within(args, *_bounds(args, None, None)),
    "clamp_min": lambda args: _within(args, args[1], None),
    "hardswish": lambda args: F.silu(args[0]),
    "sub": lambda args: args[0] + args[1],
    "gelu": lambda args: F.silu(args[0]),  # 1 + erf(x) rounds to 0 below -8
    "hardsigmoid": lambda args: torch.sigmoid(args[0]),
    "hardshrink": lambda args: args[0].clone(),
    "softshrink": lambda args: args[0].clone(),
    "round": lambda args: args[0].clone(),
    "floor": lambda args: args[0].clone(),
}
"""operator to a function of its arguments that stands for it: zero where the operator must be, and nowhere else"""


@contextmanager
def count(network: nn.Module) -> Iterator[list[ConvCall]]:
    """A list of the convolutions that run inside the ``with`` block, filled as they run."""
    counter = CountNonZero()
    begun: list[int] = []

    def enter(module: nn.Module, args: Any) -> None:
        begun.append(len(counter.calls))

    def leave(module: GatedConv | FollowingConv, args: Any, output: Tensor) -> None:
        call = counter.calls[begun.pop()]
        if module.norm_outside:  # the zeros come after the batch norm that follows
            call.outputs = waiting_scale(output).ne(0)
        else:
            call.outputs = nonzero_channels(output)

    handles = []
    for module in network.modules():
        if isinstance(module, GatedConv | FollowingConv):
            handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        with counter:
            yield counter.calls
    finally:
        for handle in handles:
            handle.remove()


def random_gates(gated: GatedNetwork, generator: torch.Generator) -> dict[str, nn.Module]:
    """A substitute for each SPM, for :func:`sanp.gating.verify.gates_by`."""
    layers = {name: layer for name, layer in gated.cost.gates.items() if ":" not in name}
    return {name: RandomGates(layer.out_channels, generator) for name, layer in layers.items()}
