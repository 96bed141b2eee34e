"""The convolution of Channel Gating (Hua et al., 2019): part of the input decides for each pixel if the rest is added.

y_p = W_p * x_p over the first 1/p of the input channels, the base path. gate = 1[σ(α (norm(y_p) - δ)) > 0.5] for every
output channel and pixel. The output is W * x where the gate is on, and y_p elsewhere. norm is a batch norm without
scale and shift. The gradient goes through the sigmoid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.modules import device_of
from sanp.gating.accounting import OfDense
from sanp.gating.cost import Decisions, dense_flops
from sanp.gating.count import ungated_cost
from sanp.gating.flops import conv_flops
from sanp.spm.recording import Gates, forward_of, note
from sanp.tracing.topology import Layer
from sanp.tracing.tracer import trace_forward

STEEPNESS = 2.0
"""α"""


class PixelGate(nn.Module):
    """A convolution with pixel gates; δ is the buffer ``target`` plus the learned ``offset`` of each channel.

    ``name`` is the convolution's path, ``base`` the number of input channels in the base path.
    """

    target: Tensor

    def __init__(self, name: str, conv: nn.Module, base: int) -> None:
        super().__init__()
        self.name, self.base = name, base
        self.conv = conv
        channels = int(conv.out_channels)  # type: ignore[arg-type]
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.offset = nn.Parameter(torch.zeros(channels))
        self.register_buffer("target", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, H, W) -> (N, C_out, H', W')
        """The output; everything is computed here, also what an engine for single pixels could skip."""
        conv: Any = self.conv
        rest: Tensor = conv._conv_forward(x[:, self.base :], conv.weight[:, self.base :], None)
        partial: Tensor = conv._conv_forward(x[:, : self.base], conv.weight[:, : self.base], conv.bias)
        soft = torch.sigmoid(STEEPNESS * (self.norm(partial) - (self.target + self.offset)[:, None, None]))
        hard = (soft.detach() > 0.5).to(soft.dtype)
        share = hard.float().mean((2, 3))  # (N, C_out)
        note(self.name, Gates(soft.float().mean((2, 3)), share, share))
        return partial + (hard + soft - soft.detach()) * rest


@dataclass(frozen=True)
class PixelCost(OfDense):
    """Counts the FLOPs of a network with pixel gates; a decision is the share of a channel's pixels with gate on."""

    base: Mapping[str, int]
    """path of a gated layer to the number of input channels in its base path"""

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each layer for each sample (N or 1,): the base path everywhere, the rest where gates are on."""
        return {layer.name: self._layer(layer, decisions.get(layer.name)) for layer in self.layers}

    def _layer(self, layer: Layer, on: Tensor | None) -> Tensor:
        if on is None:
            return torch.tensor([float(dense_flops(layer))], dtype=torch.float64)
        base = self.base[layer.path]
        always = conv_flops(layer.positions, base, layer.taps, layer.out_channels)
        rest = layer.positions * (layer.in_channels - base) * layer.taps
        return always + rest * on.sum(1)

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """The share of each channel's pixels whose gate is on (N, C_out)."""
        return dict(decisions)


class PixelGatedNetwork(nn.Module):
    """A network whose convolutions have pixel gates; called like the original.

    ``net`` is changed in place. ``example`` is an input for it. The base path is ``1 / groups`` of the input channels.
    """

    def __init__(self, net: nn.Module, example: Tensor, groups: int) -> None:
        super().__init__()
        self.net = net
        self.groups = groups
        self.method = "cg"
        self.input_shape = tuple(example.shape)
        dense = ungated_cost(net, example)
        paths = gateable(net, example, groups)
        if not paths:
            raise SanpError(f"{type(net).__name__} has no convolution that channel gating can split: choose sanp")
        base = {path: -(-int(net.get_submodule(path).in_channels) // groups) for path in paths}  # type: ignore[arg-type]
        self.cost = PixelCost(dense, base)
        for path in paths:
            parent, _, name = path.rpartition(".")
            conv = net.get_submodule(path)
            gate = PixelGate(path, conv, base[path]).to(device_of(conv)).train(conv.training)
            setattr(net.get_submodule(parent), name, gate)
        self.training = net.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The forward of the original network, with pixel gates; :func:`sanp.record` can record them."""
        with forward_of(self):
            return self.net(*args, **kwargs)

    @property
    def gates(self) -> list[PixelGate]:
        """The gated convolutions."""
        return [module for module in self.net.modules() if isinstance(module, PixelGate)]

    @property
    def overhead_flops(self) -> int:
        """One comparison for each output element of the gated layers; the batch norms fold into the thresholds."""
        gated = [layer for layer in self.cost.layers if layer.path in self.cost.base]
        return sum(layer.positions * layer.out_channels for layer in gated)

    def set_target(self, target: float) -> None:
        """Sets the target T of the thresholds in all layers."""
        for gate in self.gates:
            gate.target.fill_(target)


def gateable(net: nn.Module, example: Tensor, groups: int) -> list[str]:
    """The paths of the two-dimensional convolutions that can have pixel gates.

    Not the first one, grouped ones, 1x1 shortcuts, or those with fewer than ``groups`` input channels. ``example`` is
    an input for ``net``.
    """
    trace = trace_forward(net, example)
    readers = trace.consumers()
    paths: list[str] = []
    first = True
    for call in trace.calls:
        module = call.module
        if type(module) is not nn.Conv2d:
            continue
        shortcut = module.kernel_size == (1, 1) and len(readers.get(call.inputs[0], ())) > 1
        splits = module.groups == 1 and module.in_channels >= groups
        if not first and splits and not shortcut and not hasattr(module, "parametrizations"):
            paths.append(call.path)
        first = False
    return list(dict.fromkeys(paths))
