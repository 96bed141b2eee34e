"""Finds from one trace which gates each convolution depends on; the cost of a gated network follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor

from sanp.tracing.graph import ConvolutionCall, Node, Trace, Value
from sanp.tracing.masks import LIVE, MaskTable
from sanp.tracing.pointwise import pointwise_paths
from sanp.tracing.propagation import Propagation

Role = Literal["gated", "follows", "dense"]


@dataclass(frozen=True)
class Site:
    """A place for a gate: after a convolution, or after the batch norm that follows it."""

    name: str
    """of the layer"""
    value: Value
    """the value that the gate multiplies"""
    may_follow: bool = True
    """if the convolution is depthwise, it may use the gates of its input; false if its module is called repeatedly"""


@dataclass(frozen=True)
class Layer:
    """One call of a convolution or linear layer: its sizes and the mask ids of its channels."""

    name: str
    """the path of its module; for the second call of a module ``path:2``, and so on"""
    kind: Literal["conv", "pointwise", "linear"]
    """pointwise: a linear layer over the channels of a map, which is a 1x1 convolution under another name"""
    role: Role
    """gated: has an SPM; follows: a depthwise convolution that uses the gates of its input; dense: has no gates"""
    positions: int
    """how often the kernel is applied to a sample: HW of the output (of the input for a transposed convolution)"""
    taps: int
    """the number of elements of the kernel: k² for k x k"""
    in_channels: int
    out_channels: int
    groups: int
    in_positions: int
    """HW of the input, over which an SPM takes the mean"""
    inputs: Tensor
    """mask id of each input channel (C_in,)"""
    outputs: Tensor
    """mask id of each output channel (C_out,)"""

    @property
    def path(self) -> str:
        """The path of its module."""
        return module_path(self.name)


def module_path(name: str) -> str:
    """The path of the module that a layer's name stands for: the name without ``:2`` and the like."""
    return name.partition(":")[0]


@dataclass(frozen=True)
class Topology:
    """The convolutions and linear layers of one forward, and the masks that say which of their channels are live."""

    layers: tuple[Layer, ...]
    """in order of execution; a layer at a site is dense if the first dimension of its input is not the batch"""
    masks: MaskTable
    """the meaning of the layers' mask ids"""
    unknown: Mapping[str, int]
    """operators without a rule, and how often each met gated channels; their outputs count as live"""

    def layer(self, name: str) -> Layer:
        """The layer with this name."""
        return next(layer for layer in self.layers if layer.name == name)


def is_depthwise(node: Node, in_channels: int) -> bool:
    """Whether each output channel of the convolution ``node`` reads one of its ``in_channels`` input channels only."""
    conv = ConvolutionCall.of(node)
    return conv.groups == in_channels > 1 and not conv.transposed


def is_linear(node: Node) -> bool:
    """Whether the node multiplies features by a constant matrix."""
    if node.op == "addmm":
        return isinstance(node.args[1], Value) and isinstance(node.args[2], Tensor)
    return node.op == "mm" and isinstance(node.args[0], Value) and isinstance(node.args[1], Tensor)


def build_topology(trace: Trace, names: Mapping[int, str], sites: Mapping[int, Site]) -> Topology:
    """Follows zero channels through the trace, with a gate at each site.

    ``names`` holds the name of every convolution and linear layer, ``sites`` the places of the gates; both are keyed by
    the index of the layer's node in the trace.
    """
    propagation = Propagation(trace)
    pointwise = set(pointwise_paths(trace))
    layers: list[Layer] = []
    gate_channels: dict[Value, Tensor] = {}
    for index, node in enumerate(trace.nodes):
        if node.op == "convolution" and isinstance(ConvolutionCall.of(node).input, Value):
            layer = _conv_layer(propagation, node, names[index], sites.get(index))
            if index in sites:
                gate_channels[sites[index].value] = layer.outputs
            layers.append(layer)
        elif is_linear(node):
            layers.append(_linear_layer(propagation, node, names[index], pointwise))
        propagation.run(node)
        for value in node.outputs:
            if value in gate_channels:
                propagation.set_channels(value, gate_channels[value])
    return Topology(tuple(layers), propagation.masks, dict(propagation.unknown))


def _conv_layer(propagation: Propagation, node: Node, name: str, site: Site | None) -> Layer:
    conv = ConvolutionCall.of(node)
    source, weight = conv.input, conv.weight
    before, after = (propagation.trace.shapes[value.index] for value in (source, node.outputs[0]) if value is not None)
    inputs = propagation.channels(source)
    in_channels, out_channels = before[1], after[1]
    role: Role = "dense"
    outputs = torch.full((out_channels,), LIVE)
    if conv.bias is None and propagation.is_uneven(source):
        # Without a bias, parts of its output may be zero.
        propagation.note_unknown("convolution of uneven maps")
    by_sample = propagation.sample_dims.is_batch(source)
    follows = is_depthwise(node, in_channels) and (conv.bias is None if site is None else site.may_follow and by_sample)
    if follows and bool((inputs != LIVE).any()):  # the output of a zero channel is zero, or is set to zero at the site
        role = "follows"
        outputs = inputs.repeat_interleave(out_channels // in_channels)
    elif site is not None and by_sample:
        role = "gated"
        outputs = propagation.masks.add_gate(name, out_channels)
    shape = weight.shape if isinstance(weight, Tensor) else propagation.trace.shapes[weight.index]
    return Layer(
        name=name,
        kind="conv",
        role=role,
        positions=_per_sample(propagation, before[0], prod(before[2:]) if conv.transposed else prod(after[2:])),
        taps=prod(shape[2:]),
        in_channels=in_channels,
        out_channels=out_channels,
        groups=conv.groups,
        in_positions=prod(before[2:]),
        inputs=inputs,
        outputs=outputs,
    )


def _per_sample(propagation: Propagation, batch: int, positions: int) -> int:
    """The positions of a layer for one sample; its input has ``batch`` entries, each with ``positions`` positions."""
    share: float = batch / propagation.sample_dims.count
    return max(1, round(positions * share))


def _linear_layer(propagation: Propagation, node: Node, name: str, pointwise: set[str]) -> Layer:
    source, matrix = node.args[1:3] if node.op == "addmm" else node.args[:2]
    batch, features = propagation.trace.shapes[source.index]
    return Layer(
        name=name,
        kind="pointwise" if module_path(name) in pointwise else "linear",
        role="dense",
        positions=_per_sample(propagation, batch, 1),
        taps=1,
        in_channels=features,
        out_channels=matrix.shape[1],
        groups=1,
        in_positions=1,
        inputs=propagation.channels(source),
        outputs=torch.full((matrix.shape[1],), LIVE),
    )
