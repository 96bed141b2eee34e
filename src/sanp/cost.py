"""The cost of a forward, from its gates: the FLOPs formula over live inputs and live outputs, sample by sample."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from sanp.flops import conv_flops
from sanp.liveness import LIVE
from sanp.topology import Layer, Topology

Decisions = Mapping[str, Tensor]
"""layer name to (N, C_out): 0/1, or soft gates for a cost that has a gradient"""


class CostModel:
    """What a network's convolutions cost: dense, at the least, and for given decisions."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.layers = tuple(layer for layer in topology.layers if layer.kind == "conv")
        """PAPER 4.1.1: convolutions only"""
        self.gates = {layer.name: layer for layer in self.layers if layer.role == "gated"}
        self._derived = False
        self._sides = {layer.name: (self._live(layer.inputs), self._live(layer.outputs)) for layer in self.layers}

    @property
    def num_channels(self) -> int:
        """N_c: all gated filters of the network."""
        return sum(layer.out_channels for layer in self.gates.values())

    @property
    def dense_flops(self) -> int:
        """The cost with every channel computed."""
        return sum(dense_flops(layer) for layer in self.layers)

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
        """FLOPs of each layer for each sample."""
        pool = self._pool(decisions)
        return {
            layer.name: _layer_flops(layer, *(live(decisions, pool) for live in self._sides[layer.name]))
            for layer in self.layers
        }

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """The gates of every layer that has some, its own or those it follows: (N, C_out)."""
        pool = self._pool(decisions)
        return {
            layer.name: self._sides[layer.name][1](decisions, pool) for layer in self.layers if layer.role != "dense"
        }

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
            if layer.role == "follows":
                outputs = density * layer.out_channels
            inputs = density * layer.in_channels / layer.groups
            total = total + conv_flops(layer.positions, inputs, layer.taps, outputs)
            density = outputs / layer.out_channels
        return total

    def _pool(self, decisions: Decisions) -> Tensor:
        """Every column's value, where some layer needs more than whole gates."""
        return self.topology.columns.evaluate(decisions) if self._derived else _any(decisions)

    def _live(self, columns: Tensor) -> "Live":
        """How to read these columns' gates; found once, since it runs at every training step."""
        if bool((columns == LIVE).all()):
            return lambda decisions, pool: _any(decisions).new_ones(1, len(columns))
        for name, (first, channels) in self.topology.columns.gates.items():
            if torch.equal(columns, torch.arange(first, first + channels)):
                return lambda decisions, pool: decisions[name]
        self._derived = True
        return lambda decisions, pool: pool[:, columns]


Live = Callable[[Decisions, Tensor], Tensor]
"""From each gate's decisions and the pool of all columns to the gates of some channels: (N or 1, C)."""


def _any(decisions: Decisions) -> Tensor:
    return next(iter(decisions.values()))


def dense_flops(layer: Layer) -> int:
    """A convolution's FLOPs with all channels."""
    return conv_flops(layer.positions, layer.in_channels // layer.groups, layer.taps, layer.out_channels)


def _layer_flops(layer: Layer, inputs: Tensor, outputs: Tensor) -> Tensor:  # (N or 1, C_in), (N or 1, C_out)
    if layer.role == "follows":  # a channel's only input is live exactly when the channel is
        return conv_flops(layer.positions, 1, layer.taps, 1) * outputs.sum(1)
    if layer.groups == 1:
        return conv_flops(layer.positions, inputs.sum(1), layer.taps, outputs.sum(1))
    group_inputs = inputs.reshape(len(inputs), layer.groups, -1).sum(2)  # (N or 1, groups)
    group_outputs = outputs.reshape(len(outputs), layer.groups, -1).sum(2)
    return conv_flops(layer.positions, group_inputs, layer.taps, group_outputs).sum(1)
