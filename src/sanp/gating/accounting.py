"""What a forward costs, for networks that know it themselves: gated, cut, sparse or gated by pixel, in one protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sanp.gating.cost import CostModel, Decisions, dense_flops
from sanp.tracing.topology import Layer


class Accounting(Protocol):
    """The cost of every convolution, from what the gates of a forward decided; :class:`CostModel` is one."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The convolutions of the dense network, with all their channels."""
        ...

    @property
    def dense_flops(self) -> int:
        """The cost of the dense network."""
        ...

    def per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample (N or 1,)."""
        ...

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each layer for each sample (N or 1,)."""
        ...

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """Which channels of a layer are computed, or how much of each: (N or 1, C_out)."""
        ...

    def paper_per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample by the paper's own count."""
        ...


@runtime_checkable
class Accounted(Protocol):
    """A network that knows what its forwards cost."""

    @property
    def cost(self) -> Accounting:
        """What to ask for the cost of a forward, given the gates it recorded."""
        ...

    @property
    def overhead_flops(self) -> int:
        """FLOPs of one image that deciding what to compute adds."""
        ...


@dataclass(frozen=True)
class OfDense:
    """What a count that is not by gates takes from the dense network: its convolutions, its cost, how layers add up."""

    dense: CostModel
    """of the network before anything was taken out of it"""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The convolutions of the dense network."""
        return self.dense.layers

    @property
    def dense_flops(self) -> int:
        """The cost of the dense network."""
        return self.dense.dense_flops

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each layer for each sample (N or 1,)."""
        raise NotImplementedError

    def per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample (N or 1,)."""
        return torch.stack(torch.broadcast_tensors(*self.per_layer(decisions).values())).sum(0)

    def paper_per_sample(self, decisions: Decisions) -> Tensor:
        """No channel is pruned by a gate, so both counts are the same."""
        return self.per_sample(decisions)


@dataclass(frozen=True)
class FixedCost(OfDense):
    """The cost of a network that does the same for every image."""

    flops: Mapping[str, float]
    """layer name to what is left of its FLOPs; a layer that is not named is dense"""
    open: Mapping[str, Tensor]
    """layer name to 0/1 for each channel of the dense layer (C_out,)"""

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """The same for every sample: (1,) each."""
        left = {layer.name: self.flops.get(layer.name, float(dense_flops(layer))) for layer in self.layers}
        return {name: torch.tensor([flops], dtype=torch.float64) for name, flops in left.items()}

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """The channels that are left: (1, C_out)."""
        return {name: channels.double()[None] for name, channels in self.open.items()}


def mean_kept(cost: Accounting, decisions: Decisions) -> float:
    """The mean share of the dense FLOPs that these decisions compute."""
    return float(cost.per_sample(decisions).mean()) / cost.dense_flops
