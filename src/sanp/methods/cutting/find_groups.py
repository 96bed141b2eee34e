"""Finds the channel groups of a network: follows the id of each channel through the operators of one forward.

Operators that treat each channel on its own pass ids on. An addition or product joins the ids of its operands. Channels
that meet any other operator cannot be removed. A channel can be removed if every layer that reads it would read zero in
its place.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map

from sanp.gating.count import ungated_cost
from sanp.methods.cutting.channel_ops import (
    ELEMENTWISE,
    PAIRWISE,
    PICKING,
    REDUCING,
    RESHAPING,
    changing_dims,
    clips_around_zero,
    constants,
    is_layer,
    is_spread,
    over_positions,
)
from sanp.methods.cutting.groups import FIXED, ChannelGroups, GroupedLayer, convolution
from sanp.tracing.graph import ALIASED, ModuleCall, Node, Trace, Value
from sanp.tracing.operator_call import constant_along
from sanp.tracing.operators import KEEP_ZERO, POOL
from sanp.tracing.tracer import trace_forward


def find_groups(net: nn.Module, example: Any) -> ChannelGroups:
    """The channel groups of ``net``, found by one forward with the input ``example``."""
    channel_groups = _GroupFinder(trace_forward(net, example)).channel_groups
    cost = ungated_cost(net, example)
    for layer in cost.layers:
        member = channel_groups.members.get(layer.path)
        if member is not None:
            member.positions += layer.positions
    channel_groups.other_flops = cost.dense_flops - channel_groups.flops(set())
    return channel_groups


class _GroupFinder:
    """Follows channels through a trace: finds the ids of each value, and whether a removed channel is zero there."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.channel_groups = ChannelGroups()
        self.of: dict[Value, Tensor] = {}
        self.zero: dict[Value, bool] = {}
        self.readers = trace.consumers()
        self.made_by: dict[Value, str] = {}
        """output of a convolution to the convolution's path, to find the batch norm that follows"""
        whole = {call.first_node: call for call in trace.calls if is_layer(call)}
        index = 0
        while index < len(trace.nodes):
            call = whole.get(index)
            if call is not None and call.end_node > index:
                self.layer(call)
                index = call.end_node
            else:
                self.operator(trace.nodes[index])
                index += 1
        for value in trace.outputs:
            self.channel_groups.fix(self.ids(value))

    def ids(self, value: Value) -> Tensor:
        """The channel id of each element of a value."""
        fixed = torch.tensor(FIXED).expand(self.trace.shapes[value.index])
        return self.of.get(value, fixed)

    def along(self, value: Value, dim: int) -> Tensor:
        """The ids of a value along one dimension; if they change along another too, none of them can be removed."""
        ids = self.ids(value)
        single = constant_along(ids, [other for other in range(ids.dim()) if other != dim])
        if single is None:
            self.channel_groups.fix(ids)
            return torch.full((ids.shape[dim],), FIXED)
        return single

    def layer(self, call: ModuleCall) -> None:
        """Follows channels through a convolution, linear layer or batch norm."""
        source, out, module = call.inputs[0], call.outputs[0], call.module
        if isinstance(module, _BatchNorm):
            ids = self.along(source, 1)
            self.bind(call.path, GroupedLayer(module, None, ids))
            own = source in self.made_by and len({self.trace.nodes[i].call for i in self.readers[source]}) == 1
            if own:
                self.channel_groups.norm_of[self.made_by[source]] = call.path
            self.put(out, ids, dim=1, zero=own)
            return
        if isinstance(module, nn.Linear):
            inputs = self.read(source, -1)
            self.bind(call.path, GroupedLayer(module, inputs, outputs := self.channel_groups.new(module.out_features)))
            self.put(out, outputs, dim=-1, zero=False)
            return
        self.convolution(call.path, convolution(module), source, out)

    def convolution(self, path: str, conv: nn.Conv2d, source: Value, out: Value) -> None:
        """Follows channels through a convolution.

        Its outputs get new ids. The outputs of a depthwise one have the ids of its inputs, and in other grouped
        convolutions no input or output can be removed.
        """
        if conv.groups == conv.in_channels == conv.out_channels and conv.groups > 1:
            inputs = outputs = self.along(source, 1)
        else:
            inputs, outputs = self.read(source, 1), self.channel_groups.new(conv.out_channels)
            if conv.groups > 1:
                self.channel_groups.fix(torch.cat((inputs, outputs)))
        self.bind(path, GroupedLayer(conv, inputs, outputs))
        self.put(out, outputs, dim=1, zero=True)
        self.made_by[out] = path

    def read(self, value: Value, dim: int) -> Tensor:
        """The ids of the input channels of a layer that sums over them; fixes them if removed ones are not zero."""
        ids = self.along(value, dim % len(self.trace.shapes[value.index]))
        if not self.zero.get(value, False):
            self.channel_groups.fix(ids)
        return ids

    def bind(self, path: str, member: GroupedLayer) -> None:
        """Adds a layer; if it was called before, the channels of both calls are joined."""
        before = self.channel_groups.members.get(path)
        if before is None:
            self.channel_groups.members[path] = member
            return
        for old, new in ((before.inputs, member.inputs), (before.outputs, member.outputs)):
            if old is not None and new is not None:
                self.join(old, new)

    def put(self, value: Value, ids: Tensor, *, dim: int, zero: bool) -> None:
        """Sets the ids of a value: ``ids`` are those along ``dim``; ``zero``: a removed channel is zero there."""
        shape = self.trace.shapes[value.index]
        sizes = [1] * len(shape)
        sizes[dim] = len(ids)
        self.of[value] = ids.reshape(sizes).expand(shape)
        self.zero[value] = zero

    def join(self, left: Tensor, right: Tensor, *, adding: bool = False) -> None:
        """Joins ids pair by pair; ``adding``: an addition is the reason."""
        pairs = torch.unique(torch.stack((left.reshape(-1), right.reshape(-1)), 1), dim=0)
        for a, b in pairs.tolist():
            if self.channel_groups.join(a, b) and adding:
                self.channel_groups.added.update((a, b))

    def operator(self, node: Node) -> None:
        """Follows channels through an operator outside such layers; if that is not possible, fixes its inputs."""
        name = node.base_op
        inputs = [value for value in node.inputs() if value in self.of]
        if node.op == ALIASED:  # its origin is unknown: any earlier channel may be in it
            self.channel_groups.fix(torch.arange(len(self.channel_groups.parent)))
        if not inputs:
            return
        made = None
        if name in PAIRWISE:
            made = self.pairwise(node, name)
        elif len(inputs) == len(node.inputs()):
            made = self.one_by_one(node, name)
        if made is None:
            for value in inputs:
                self.channel_groups.fix(self.ids(value))

    def one_by_one(self, node: Node, name: str) -> bool | None:
        """Follows channels through an operator that treats each on its own; None if this is not such an operator."""
        value, out = node.inputs()[0], node.outputs[0]
        if out is None or any(constant.numel() > 1 for constant in constants(node)):
            return None
        ids, shape = self.ids(value), self.trace.shapes[out.index]
        if name in KEEP_ZERO or name in ELEMENTWISE:
            return self.passed(out, ids, zero=self.zero[value] and (name in KEEP_ZERO or clips_around_zero(node)))
        padded = name == "constant_pad_nd" and len(node.args[1]) <= 2 * (ids.dim() - 2) and not any(node.args[2:])
        if padded or name in POOL or (name in REDUCING and over_positions(node, ids.dim())):
            return self.pooled(value, out, shape)
        if name in RESHAPING or name in PICKING:
            return self.moved(node, picking=name in PICKING)
        return None

    def passed(self, out: Value, ids: Tensor, *, zero: bool) -> bool | None:
        """Gives the output the ids; None if they change along several dimensions, or do not have its shape."""
        if ids.shape != self.trace.shapes[out.index] or changing_dims(ids) > 1:
            return None
        self.of[out], self.zero[out] = ids, zero
        return True

    def pooled(self, value: Value, out: Value, shape: torch.Size) -> bool | None:
        """Follows channels through pooling, padding or a mean over positions."""
        ids = self.ids(value)
        channels = constant_along(ids, list(range(2, ids.dim()))) if ids.dim() > 2 else None
        if channels is None or tuple(shape[:2]) != tuple(channels.shape):
            return None
        whole = channels.reshape(*channels.shape, *(1,) * (len(shape) - 2)).expand(shape)
        return self.passed(out, whole, zero=self.zero[value])

    def moved(self, node: Node, *, picking: bool) -> bool | None:
        """Follows channels through an operator that only moves elements, by running it on the ids."""
        args, kwargs = tree_map(
            lambda leaf: self.ids(leaf).contiguous() if isinstance(leaf, Value) else leaf,
            (node.args, node.kwargs),
        )
        results = node.func(*args, **kwargs)
        results = results if isinstance(results, list | tuple) else [results]
        before = {channel for value in node.inputs() for channel in self.ids(value).unique().tolist()}
        zero = all(self.zero.get(value, False) for value in node.inputs())
        for out, ids in zip(node.outputs, results, strict=True):
            if picking and set(ids.unique().tolist()) != before:
                return None  # the place where a part begins would change if earlier channels were removed
            if out is None or self.passed(out, ids, zero=zero) is None:
                return None
        return True

    def pairwise(self, node: Node, name: str) -> bool | None:
        """Joins the channels of the operands of a sum or product; fixes an operand that is broadcast over channels."""
        out = node.outputs[0]
        assert out is not None
        shape, values = self.trace.shapes[out.index], node.inputs()
        if any(constant.numel() > 1 for constant in constants(node)):
            return None
        sides = [self.ids(value).expand(shape) for value in values]
        if len(values) == 2:
            for mine, other in ((0, 1), (1, 0)):
                if is_spread(self.trace.shapes[values[mine].index], sides[other]):
                    self.channel_groups.fix(sides[mine])
                    sides[mine] = sides[other]
            self.join(*sides, adding=name not in ("mul", "div"))
        zeros = [self.zero.get(value, False) for value in values]
        if name == "mul":
            zero = any(zeros)
        elif name == "div":
            zero = zeros[0] and node.args[0] == values[0]
        else:
            zero = all(zeros) and len(values) == 2  # zero plus a constant is not zero
        return self.passed(out, sides[0], zero=zero)
