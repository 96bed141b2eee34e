"""The convolution of Channel Gating (Hua et al., 2019): part of the input decides for each pixel if the rest is added.

y_p = W_p * x_p over 1/p of the input channels, the base path. gate = 1[σ(α (norm(y_p) - δ)) > 0.5] for every output
channel and pixel. The output is W * x where the gate is on, and y_p elsewhere. norm is a batch norm without scale and
shift. The gradient goes through the sigmoid.

The base path is the first 1/p of the channels for all outputs, or grouped: inputs and outputs are divided into p
blocks, and the base path of output block g is input block g.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.modules import device_of
from sanp.gating.accounting import OfDense
from sanp.gating.cost import Decisions, dense_flops
from sanp.gating.count import ungated_cost
from sanp.spm.recording import Gates, forward_of, note
from sanp.tracing.graph import Trace, Value
from sanp.tracing.topology import Layer
from sanp.tracing.tracer import trace_forward

GATE_STEEPNESS = 2.0
"""α"""


FOLLOWING_ACTIVATIONS = set(
    "relu relu6 leaky_relu prelu _prelu_kernel elu selu celu silu mish gelu hardswish tanh sigmoid hardsigmoid "
    "hardtanh clamp softplus".split()
)
"""operators that follow a convolution as its activation"""


def base_mask(in_channels: int, out_channels: int, groups: int, *, grouped: bool, shuffle: bool) -> Tensor:
    """Which input channels are in the base path of each output channel: boolean (C_out, C_in).

    Not ``grouped``: the first ceil(C_in / groups) for all outputs. Else output block g has input block g. Blocks are
    neighbouring channels; ``shuffle`` deals the inputs out instead, so that each block has some of every block.
    """
    mask = torch.zeros(out_channels, in_channels, dtype=torch.bool)
    if not grouped:
        mask[:, : -(-in_channels // groups)] = True
        return mask
    order = torch.arange(in_channels)
    if shuffle:  # the first channel of each block, then the second of each, and so on
        blocks = order.tensor_split(groups)
        place = torch.cat([torch.arange(len(block)) for block in blocks])
        order = place.argsort(stable=True)
    for inputs, outputs in zip(
        order.tensor_split(groups), torch.arange(out_channels).tensor_split(groups), strict=True
    ):
        mask[outputs[:, None], inputs] = True
    return mask


class PixelGate(nn.Module):
    """A convolution with pixel gates; δ is the buffer ``target`` plus the learned ``offset`` of each channel.

    ``name`` is the convolution's path. The other arguments are those of :func:`base_mask`.
    """

    target: Tensor
    mask: Tensor
    order: Tensor

    def __init__(
        self, name: str, conv: nn.Module, groups: int, *, grouped: bool = False, shuffle: bool = False
    ) -> None:
        super().__init__()
        self.name, self.groups = name, groups
        self.conv = conv
        channels, inputs = int(conv.out_channels), int(conv.in_channels)  # type: ignore[arg-type]
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.offset = nn.Parameter(torch.zeros(channels))
        self.register_buffer("target", torch.zeros(()))
        mask = base_mask(inputs, channels, groups, grouped=grouped, shuffle=shuffle)
        self.register_buffer("mask", mask, persistent=False)
        even = grouped and channels % groups == 0 and inputs % groups == 0 and conv.padding_mode == "zeros"
        order = torch.cat([row.nonzero()[:, 0] for row in mask[:: channels // groups]]) if even else torch.empty(0)
        self.register_buffer("order", order, persistent=False)
        """the input channels, block after block, if the base path is a grouped convolution; else empty"""

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, H, W) -> (N, C_out, H', W')
        """The output; everything is computed here, also what an engine for single pixels could skip."""
        conv: Any = self.conv
        mask = self.mask[:, :, None, None]
        rest: Tensor = conv._conv_forward(x, conv.weight * ~mask, None)
        partial = self._base_path(x)
        soft = torch.sigmoid(GATE_STEEPNESS * (self.norm(partial) - (self.target + self.offset)[:, None, None]))
        hard = (soft.detach() > 0.5).to(soft.dtype)
        share = hard.float().mean((2, 3))  # (N, C_out)
        note(self.name, Gates(soft.float().mean((2, 3)), share, share))
        return partial + (hard + soft - soft.detach()) * rest

    def _base_path(self, x: Tensor) -> Tensor:
        """y_p; as a grouped convolution where the blocks are of equal size, which is less work."""
        conv: Any = self.conv
        if not len(self.order):
            partial: Tensor = conv._conv_forward(x, conv.weight * self.mask[:, :, None, None], conv.bias)
            return partial
        weight = conv.weight[self.mask].unflatten(0, (len(self.mask), -1))  # (C_out, C_in / p, k, k)
        shape = (conv.stride, conv.padding, conv.dilation)
        return F.conv2d(x[:, self.order], weight, conv.bias, *shape, groups=self.groups)


@dataclass(frozen=True)
class PixelCost(OfDense):
    """Counts the FLOPs of a network with pixel gates; a decision is the share of a channel's pixels with gate on."""

    base: Mapping[str, Tensor]
    """path of a gated layer to the number of input channels in the base path of each output channel (C_out,)"""

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each layer for each sample (N or 1,): the base path everywhere, the rest where gates are on.

        They are counted on the CPU, wherever the gates are.
        """
        return {layer.name: self._layer(layer, decisions.get(layer.name)) for layer in self.layers}

    def _layer(self, layer: Layer, on: Tensor | None) -> Tensor:
        if on is None:
            return torch.tensor([float(dense_flops(layer))], dtype=torch.float64)
        base = self.base[layer.path].cpu().double()
        always = layer.positions * (layer.taps * float(base.sum()) + layer.out_channels)
        rest = layer.positions * layer.taps * (layer.in_channels - base)  # (C_out,)
        return always + on.cpu().double() @ rest

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """The share of each channel's pixels whose gate is on (N, C_out)."""
        return dict(decisions)


class PixelGatedNetwork(nn.Module):
    """A network whose convolutions have pixel gates; called like the original.

    ``net`` is changed in place. ``example`` is an input for it. The base path is ``1 / groups`` of the input channels;
    ``grouped`` and ``shuffle`` are those of :func:`base_mask`, ``gate_all`` that of :func:`gateable`. The defaults are
    what files of older versions mean.
    """

    def __init__(
        self,
        net: nn.Module,
        example: Tensor,
        groups: int,
        *,
        grouped: bool = False,
        shuffle: bool = False,
        gate_all: bool = True,
    ) -> None:
        super().__init__()
        self.net = net
        self.groups, self.grouped, self.shuffle, self.gate_all = groups, grouped, shuffle, gate_all
        self.method = "cg"
        self.input_shape = tuple(example.shape)
        dense = ungated_cost(net, example)
        paths = gateable(net, example, groups, gate_all=gate_all)
        if not paths:
            raise SanpError(f"{type(net).__name__} has no convolution that channel gating can split: choose sanp")
        base = {}
        for path in paths:
            parent, _, name = path.rpartition(".")
            conv = net.get_submodule(path)
            gate = PixelGate(path, conv, groups, grouped=grouped, shuffle=shuffle)
            base[path] = gate.mask.sum(1)
            setattr(net.get_submodule(parent), name, gate.to(device_of(conv)).train(conv.training))
        self.cost = PixelCost(dense, base)
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


def gateable(net: nn.Module, example: Tensor, groups: int, *, gate_all: bool = True) -> list[str]:
    """The paths of the two-dimensional convolutions that can have pixel gates.

    Not the first one, grouped ones, 1x1 shortcuts, or those with fewer than ``groups`` input channels. If not
    ``gate_all``, only those that an activation follows, directly or after a batch norm. ``example`` is an input for
    ``net``.
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
        splits = module.groups == 1 and module.in_channels >= groups and not hasattr(module, "parametrizations")
        wanted = gate_all or is_activated(trace, readers, call.outputs[0])
        if not first and splits and not shortcut and wanted:
            paths.append(call.path)
        first = False
    return list(dict.fromkeys(paths))


def is_activated(trace: Trace, readers: Mapping[Value, list[int]], value: Value) -> bool:
    """Whether an activation is the only reader of ``value``, perhaps after a batch norm.

    ``readers`` are those of :meth:`Trace.consumers`.
    """
    nodes = [trace.nodes[index] for index in readers.get(value, ())]
    if len(nodes) != 1:
        return False
    if "batch_norm" in nodes[0].op and nodes[0].outputs[0] is not None:
        return is_activated(trace, readers, nodes[0].outputs[0])
    return nodes[0].base_op in FOLLOWING_ACTIVATIONS
