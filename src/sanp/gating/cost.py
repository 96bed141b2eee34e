"""The cost of a forward, from its gates: the FLOPs formula over live inputs and live outputs, sample by sample."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sanp.core.errors import SanpError
from sanp.gating.amount import LatencyTable, parse_budget
from sanp.gating.flops import conv_flops, human
from sanp.tracing.masks import LIVE, Liveness
from sanp.tracing.topology import Layer, Topology

Decisions = Mapping[str, Tensor]
"""layer name to (N, C_out): 0/1, or soft gates for a cost that has a gradient"""


class CostModel:
    """What a network's convolutions cost: dense, at the least, and for given decisions."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.layers = tuple(layer for layer in topology.layers if layer.kind == "conv")
        """PAPER 4.1.1: convolutions only"""
        self.linears = tuple(layer for layer in topology.layers if layer.kind == "linear")
        """linear layers, which no total includes; see :meth:`linear_per_layer`"""
        self.gates = {layer.name: layer for layer in self.layers if layer.role == "gated"}
        self._convolutions = _Sides(topology, self.layers)
        self._linears = _Sides(topology, self.linears)

    @property
    def num_channels(self) -> int:
        """N_c: all gated filters of the network."""
        return sum(layer.out_channels for layer in self.gates.values())

    @property
    def dense_flops(self) -> int:
        """The cost with every channel computed."""
        return sum(dense_flops(layer) for layer in self.layers)

    @property
    def dense_linear_flops(self) -> int:
        """The cost of the linear layers with every input read."""
        return sum(dense_flops(layer) for layer in self.linears)

    @property
    def floor_flops(self) -> float:
        """The least a forward can cost: one open channel in each gated layer."""
        if not self.gates:
            return self.dense_flops
        one = {name: torch.eye(1, layer.out_channels) for name, layer in self.gates.items()}
        return float(self.per_sample(one))

    def per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample (N,), both-sided: live inputs times live outputs."""
        costs = self.per_layer(decisions)
        return torch.stack(torch.broadcast_tensors(*costs.values())).sum(0)

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each convolution for each sample (N or 1,)."""
        return self._convolutions.flops(self._complete(decisions))

    def linear_per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each linear layer for each sample (N or 1,): its inputs from pruned channels need not be read."""
        return self._linears.flops(self._complete(decisions))

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """The gates of every layer that has some, its own or those it follows: (N, C_out)."""
        sides = self._convolutions.live(self._complete(decisions))
        return {layer.name: sides[layer.name][1] for layer in self.layers if layer.role != "dense"}

    def paper_per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs by the paper's own count: a layer's inputs are as dense as the convolution before it was.

        PAPER table 3: its FIXED K row fits only this count. It ignores that an addition keeps a channel that either
        branch keeps, so it is lower than the truth wherever there are residual connections.
        """
        total, density = torch.zeros(()), torch.ones(())
        for layer in self.layers:
            outputs = (
                decisions[layer.name].sum(1) if layer.name in decisions else torch.tensor(float(layer.out_channels))
            )
            inputs = density * layer.in_channels / layer.groups
            if layer.role == "follows":  # each of its groups is live or is not
                outputs = density * layer.out_channels
                inputs = torch.tensor(layer.in_channels / layer.groups)
            total = total + conv_flops(layer.positions, inputs, layer.taps, outputs)
            density = outputs / layer.out_channels
        return total

    def _complete(self, decisions: Decisions) -> Decisions:
        """The decisions of all gates: a layer that did not run, as under stochastic depth, has all its gates closed."""
        if decisions.keys() == self.gates.keys():
            return decisions
        unknown = sorted(decisions.keys() - self.gates.keys())
        if unknown:
            raise SanpError(
                f"decisions were given for {unknown[0]!r}, which has no gate in this network or ran more often than on "
                "its example: give what sanp.record collected, and gate with an example that runs every layer"
            )
        if not decisions:
            return {name: torch.ones(1, layer.out_channels) for name, layer in self.gates.items()}
        like = next(iter(decisions.values()))
        closed = {name: like.new_zeros(1, layer.out_channels) for name, layer in self.gates.items()}
        return {**closed, **decisions}


def kept_for(budget: object, cost: CostModel, latency: LatencyTable | None = None) -> float:
    """The share of the dense FLOPs that a budget leaves; one that the gates cannot reach is an error."""
    kept = parse_budget(budget).kept_of(cost.dense_flops, latency)
    floor = cost.floor_flops / cost.dense_flops
    if kept < floor:
        raise SanpError(
            f"a budget of {budget} is {kept:.3%} of {human(cost.dense_flops)} FLOPs, and one open channel in each "
            f"gated layer already costs {floor:.3%} ({human(cost.floor_flops)}): give at least that"
        )
    if kept > 1:
        raise SanpError(
            f"a budget of {budget} is more than the dense {human(cost.dense_flops)} FLOPs: nothing to prune"
        )
    return kept


class _Sides:
    """The live inputs and outputs of some layers; how to read them is found once, since it runs at every step."""

    def __init__(self, topology: Topology, layers: tuple[Layer, ...]) -> None:
        self._layers = layers
        both = [side for layer in layers for side in (layer.inputs, layer.outputs)]
        self._gated = [bool((side != LIVE).any()) for side in both]
        self._widths = [len(side) for side in both]
        self._liveness = Liveness(
            topology.masks, [side for side, gated in zip(both, self._gated, strict=True) if gated]
        )

    def live(self, decisions: Decisions) -> dict[str, tuple[Tensor, Tensor]]:
        """Layer name to its inputs and outputs, (N or 1, C) each."""
        gated = iter(self._liveness(decisions))
        like = next(iter(decisions.values())) if decisions else torch.zeros(())

        def side(is_gated: bool, width: int) -> Tensor:
            return next(gated) if is_gated else like.new_ones(1, width)

        sides = [side(is_gated, width) for is_gated, width in zip(self._gated, self._widths, strict=True)]
        names = [layer.name for layer in self._layers]
        return dict(zip(names, zip(sides[::2], sides[1::2], strict=True), strict=True))

    def flops(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each layer for each sample (N or 1,)."""
        sides = self.live(decisions)
        return {layer.name: _layer_flops(layer, *sides[layer.name]) for layer in self._layers}


def dense_flops(layer: Layer) -> int:
    """A layer's FLOPs with all channels."""
    return conv_flops(layer.positions, layer.in_channels // layer.groups, layer.taps, layer.out_channels)


def _layer_flops(layer: Layer, inputs: Tensor, outputs: Tensor) -> Tensor:  # (N or 1, C_in), (N or 1, C_out)
    if layer.role == "follows":  # a channel's only input is live exactly when the channel is
        return conv_flops(layer.positions, 1, layer.taps, 1) * outputs.sum(1)
    if layer.groups == 1:
        return conv_flops(layer.positions, inputs.sum(1), layer.taps, outputs.sum(1))
    group_inputs = inputs.reshape(len(inputs), layer.groups, -1).sum(2)  # (N or 1, groups)
    group_outputs = outputs.reshape(len(outputs), layer.groups, -1).sum(2)
    return conv_flops(layer.positions, group_inputs, layer.taps, group_outputs).sum(1)
