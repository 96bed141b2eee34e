"""The cost model: the FLOPs formula over the live inputs and outputs of each layer, for each sample."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sanp.core.errors import SanpError
from sanp.gating.amount import LatencyTable, parse_budget
from sanp.gating.flops import conv_flops, human
from sanp.tracing.masks import LIVE, Liveness
from sanp.tracing.topology import Layer, Topology

Decisions = Mapping[str, Tensor]
"""layer name to (N, C_out): 0/1 decisions, or soft gates if the FLOPs shall have a gradient"""


class CostModel:
    """Counts the FLOPs of a gated network's convolutions from the decisions of its gates."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.layers = tuple(layer for layer in topology.layers if layer.kind != "linear")
        """the convolutions, pointwise linear layers among them; PAPER 4.1.1 counts nothing else"""
        self.linears = tuple(layer for layer in topology.layers if layer.kind == "linear")
        """the other linear layers, which are in no total; see :meth:`linear_per_layer`"""
        self.gates = {layer.name: layer for layer in self.layers if layer.role == "gated"}
        """the gated layers by name"""
        self._convolutions = _Sides(topology, self.layers)
        self._linears = _Sides(topology, self.linears)

    def __repr__(self) -> str:
        gated, all = len(self.gates), len(self.layers)
        dense, floor = human(self.dense_flops), human(self.floor_flops)
        return f"CostModel({gated} of {all} convolutions gated, {dense} FLOPs dense, {floor} at the least)"

    @property
    def num_channels(self) -> int:
        """N_c: the number of gated channels of the network."""
        return sum(layer.out_channels for layer in self.gates.values())

    @property
    def dense_flops(self) -> int:
        """FLOPs of one image with every channel computed."""
        return sum(dense_flops(layer) for layer in self.layers)

    @property
    def dense_linear_flops(self) -> int:
        """FLOPs of the linear layers for one image with every input read."""
        return sum(dense_flops(layer) for layer in self.linears)

    @property
    def floor_flops(self) -> float:
        """FLOPs of one image with one open channel in each gated layer, the fewest possible."""
        if not self.gates:
            return self.dense_flops
        one = {name: torch.eye(1, layer.out_channels) for name, layer in self.gates.items()}
        return float(self.per_sample(one))

    def per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample (N,), from the live inputs and the live outputs of each layer."""
        return total(self.per_layer(decisions))

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each convolution for each sample (N or 1,)."""
        return self._convolutions.flops(self._complete(decisions))

    def linear_per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each linear layer for each sample (N or 1,), without inputs that come from pruned channels."""
        return self._linears.flops(self._complete(decisions))

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """The gates (N, C_out) of each layer that has an SPM or follows the gates of its input."""
        sides = self.live_sides(decisions)
        return {layer.name: sides[layer.name][1] for layer in self.layers if layer.role != "dense"}

    def live_sides(self, decisions: Decisions) -> dict[str, tuple[Tensor, Tensor]]:
        """The live inputs (N or 1, C_in) and outputs (N or 1, C_out) of each convolution, by name."""
        return self._convolutions.live(self._complete(decisions))

    def paper_per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample by the paper's count: the live share of a layer's inputs is that of the outputs of the
        convolution before it.

        PAPER table 3: the row FIXED K fits only this count. It ignores that a channel is live after an addition if
        either branch is, so that it is too low for networks with residual connections.
        """
        total, density = torch.zeros(()), torch.ones(())
        for layer in self.layers:
            outputs = (
                decisions[layer.name].sum(1) if layer.name in decisions else torch.tensor(float(layer.out_channels))
            )
            inputs = density * layer.in_channels / layer.groups
            if layer.role == "follows":  # its channels are live exactly where their inputs are
                outputs = density * layer.out_channels
                inputs = torch.tensor(layer.in_channels / layer.groups)
            total = total + conv_flops(layer.positions, inputs, layer.taps, outputs)
            density = outputs / layer.out_channels
        return total

    def _complete(self, decisions: Decisions) -> Decisions:
        """The decisions of all gates. A layer that did not run, for example under stochastic depth, counts as closed;
        if there are no decisions at all, every gate counts as open."""
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
    """A budget as a share of the dense FLOPs; an error if the gates cannot reach it.

    ``budget`` is a share, a count of multiply-adds or, with the table ``latency``, a time; see :func:`parse_budget`.
    """
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
    """Computes the live inputs and outputs of some layers; what that needs is found once, since every step runs it."""

    def __init__(self, topology: Topology, layers: tuple[Layer, ...]) -> None:
        self._layers = layers
        both = [side for layer in layers for side in (layer.inputs, layer.outputs)]
        self._gated = [bool((side != LIVE).any()) for side in both]
        self._widths = [len(side) for side in both]
        self._liveness = Liveness(
            topology.masks, [side for side, gated in zip(both, self._gated, strict=True) if gated]
        )

    def live(self, decisions: Decisions) -> dict[str, tuple[Tensor, Tensor]]:
        """Layer name to the masks of its inputs and of its outputs, (N or 1, C) each."""
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


def total(costs: Mapping[str, Tensor]) -> Tensor:
    """The sum over the layers (N or 1,) of what each costs each sample, by layer name."""
    return torch.stack(torch.broadcast_tensors(*costs.values())).sum(0)


def dense_flops(layer: Layer) -> int:
    """FLOPs of a layer for one image with all channels computed."""
    return conv_flops(layer.positions, layer.in_channels // layer.groups, layer.taps, layer.out_channels)


def _layer_flops(layer: Layer, inputs: Tensor, outputs: Tensor) -> Tensor:  # (N or 1, C_in), (N or 1, C_out)
    if layer.role == "follows":  # the only input of a channel is live exactly when the channel is
        return conv_flops(layer.positions, 1, layer.taps, 1) * outputs.sum(1)
    if layer.groups == 1:
        return conv_flops(layer.positions, inputs.sum(1), layer.taps, outputs.sum(1))
    group_inputs = inputs.reshape(len(inputs), layer.groups, -1).sum(2)  # (N or 1, groups)
    group_outputs = outputs.reshape(len(outputs), layer.groups, -1).sum(2)
    return conv_flops(layer.positions, group_inputs, layer.taps, group_outputs).sum(1)
