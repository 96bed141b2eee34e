"""One protocol for the FLOPs of all kinds of pruned networks: gated, cut, sparse, or gated by pixel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sanp.gating.cost import CostModel, Decisions, dense_flops, total
from sanp.tracing.topology import Layer


class Accounting(Protocol):
    """Counts the FLOPs of a forward from the decisions of its gates; :class:`CostModel` is one."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The convolutions of the dense network, with all their channels."""
        ...

    @property
    def dense_flops(self) -> int:
        """FLOPs of one image with every channel computed."""
        ...

    def per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample (N or 1,)."""
        ...

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each layer for each sample (N or 1,)."""
        ...

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """Layer name to (N or 1, C_out): which channels are computed, or what share of each."""
        ...

    def paper_per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample by the paper's count, see :meth:`CostModel.paper_per_sample`."""
        ...


@runtime_checkable
class Accounted(Protocol):
    """A network that can count the FLOPs of its forwards."""

    @property
    def cost(self) -> Accounting:
        """Counts the FLOPs of a forward from its recorded decisions."""
        ...

    @property
    def overhead_flops(self) -> int:
        """FLOPs that the decisions themselves add for one image."""
        ...


@dataclass(frozen=True)
class OfDense:
    """Base for counts of networks without channel gates: a subclass counts the FLOPs of each layer."""

    dense: CostModel
    """of the dense network, before it was pruned"""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The convolutions of the dense network."""
        return self.dense.layers

    @property
    def dense_flops(self) -> int:
        """FLOPs of the dense network for one image."""
        return self.dense.dense_flops

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each layer for each sample (N or 1,)."""
        raise NotImplementedError

    def per_sample(self, decisions: Decisions) -> Tensor:
        """FLOPs of each sample (N or 1,)."""
        return total(self.per_layer(decisions))

    def paper_per_sample(self, decisions: Decisions) -> Tensor:
        """The same as :meth:`per_sample`: the two counts differ only where gates prune channels."""
        return self.per_sample(decisions)


@dataclass(frozen=True)
class FixedCost(OfDense):
    """The count of a network that computes the same channels for every image."""

    flops: Mapping[str, float]
    """layer name to its FLOPs for one image; layers that are not named are dense"""
    open: Mapping[str, Tensor]
    """layer name to (C_out,): 1 for each channel of the dense layer that is left, 0 for the others"""

    def per_layer(self, decisions: Decisions) -> dict[str, Tensor]:
        """FLOPs of each layer (1,), the same for every sample."""
        left = {layer.name: self.flops.get(layer.name, float(dense_flops(layer))) for layer in self.layers}
        return {name: torch.tensor([flops], dtype=torch.float64) for name, flops in left.items()}

    def open_outputs(self, decisions: Decisions) -> dict[str, Tensor]:
        """The channels of each layer that are left (1, C_out)."""
        return {name: channels.double()[None] for name, channels in self.open.items()}


def mean_kept(cost: Accounting, decisions: Decisions) -> float:
    """The share of the dense FLOPs that is computed with these decisions, as a mean over the samples."""
    return float(cost.per_sample(decisions).mean()) / cost.dense_flops
