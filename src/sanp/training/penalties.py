"""Penalties that close channels, with a gradient: the one of the paper (eq. 9) and alternatives.

All take the saliencies s of a forward, by layer name, and the cost model of the network.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from sanp.gating.cost import CostModel
from sanp.spm.binarize import saturating_sigmoid

Saliencies = Mapping[str, Tensor]
"""layer name to s (N, C_out)"""


CostPenalty = Callable[[Saliencies, CostModel], Tensor]
"""Computes the penalty from the saliencies of a forward and the cost model of the network."""


def _per_channel(saliencies: Saliencies, cost: CostModel, of: Callable[[Tensor], Tensor]) -> Tensor:
    """(1 / N_c) Σ_l Σ_i of(s_i), averaged over the samples."""
    total = sum((of(s).sum(1).mean() for s in saliencies.values()), start=torch.zeros(()))
    return total / cost.num_channels


def saliency_penalty(saliencies: Saliencies, cost: CostModel) -> Tensor:
    """The penalty of the paper: (1 / N_c) Σ |s|. It pulls the saliencies of open and of closed channels towards 0."""
    return _per_channel(saliencies, cost, torch.abs)


def positive_penalty(saliencies: Saliencies, cost: CostModel) -> Tensor:
    """(1 / N_c) Σ max(s, 0): has no gradient at closed channels."""
    return _per_channel(saliencies, cost, F.relu)


def gate_penalty(saliencies: Saliencies, cost: CostModel) -> Tensor:
    """(1 / N_c) Σ s1: the mean soft gate, in place of the mean decision, which has no gradient."""
    return _per_channel(saliencies, cost, saturating_sigmoid)


STEEPNESS = 3.0
"""steepness of the soft gates in the FLOPs penalty. They are so steep that saliencies near 0 are pulled down more than
others, and separate into open and closed channels. With gates as flat as s1 all saliencies sank together and ended just
above 0 (docs/log.md)."""


def flops_penalty(saliencies: Saliencies, cost: CostModel) -> Tensor:
    """The share of the dense FLOPs that soft gates σ(3s) compute; channels with more FLOPs have a larger penalty.

    It has a gradient at closed channels too, so that a negative λ can open them again.
    """
    soft = {name: torch.sigmoid(STEEPNESS * s) for name, s in saliencies.items()}
    return cost.per_sample(soft).mean() / cost.dense_flops


def runaway_penalty(saliencies: Saliencies, cost: CostModel, low: float = -1.0, high: float = 3.0) -> Tensor:
    """The mean square of what lies outside [low, high]; it keeps saliencies where the soft gates have a gradient."""
    return _per_channel(saliencies, cost, lambda s: F.relu(low - s).square() + F.relu(s - high).square())


PENALTIES: dict[str, CostPenalty] = {
    "saliency": saliency_penalty,
    "positive": positive_penalty,
    "gates": gate_penalty,
    "flops": flops_penalty,
}
