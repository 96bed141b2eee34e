"""What the gates of a forward cost, as something with a gradient: the paper's penalty (eq. 11) and its alternatives."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from sanp.gating.cost import CostModel
from sanp.spm.binarize import saturating_sigmoid

Saliencies = Mapping[str, Tensor]
"""layer name to s (N, C_out)"""


Penalty = Callable[[Saliencies, CostModel], Tensor]


def _per_channel(saliencies: Saliencies, cost: CostModel, of: Callable[[Tensor], Tensor]) -> Tensor:
    """(1 / N_c) Σ_l Σ_i of(s_i), averaged over the samples."""
    total = sum((of(s).sum(1).mean() for s in saliencies.values()), start=torch.zeros(()))
    return total / cost.num_channels


def saliency_penalty(saliencies: Saliencies, cost: CostModel) -> Tensor:
    """The paper's: (1 / N_c) Σ |s|. It pulls closed channels back towards 0 as it pulls open ones down."""
    return _per_channel(saliencies, cost, torch.abs)


def positive_penalty(saliencies: Saliencies, cost: CostModel) -> Tensor:
    """(1 / N_c) Σ max(s, 0): leaves closed channels alone."""
    return _per_channel(saliencies, cost, F.relu)


def gate_penalty(saliencies: Saliencies, cost: CostModel) -> Tensor:
    """(1 / N_c) Σ soft gate: what |b|_1 would be if it had a gradient."""
    return _per_channel(saliencies, cost, saturating_sigmoid)


STEEPNESS = 3.0
"""of the soft gates that the FLOPs penalty counts: channels near the edge are pulled over it, those far from it stay,
so that saliencies come apart. As flat as s1 they slid down all together and piled up just above 0 (docs/log.md)."""


def flops_penalty(saliencies: Saliencies, cost: CostModel) -> Tensor:
    """The share of the dense FLOPs that soft gates σ(3s) would cost: a channel pays what it really costs.

    It has a gradient at closed channels too, so that a negative λ reopens them.
    """
    soft = {name: torch.sigmoid(STEEPNESS * s) for name, s in saliencies.items()}
    return cost.per_sample(soft).mean() / cost.dense_flops


def runaway_penalty(saliencies: Saliencies, cost: CostModel, low: float = -1.0, high: float = 3.0) -> Tensor:
    """Keeps saliencies where the gates still have a gradient: the squares of what lies outside [low, high]."""
    return _per_channel(saliencies, cost, lambda s: F.relu(low - s).square() + F.relu(s - high).square())


PENALTIES: dict[str, Penalty] = {
    "saliency": saliency_penalty,
    "positive": positive_penalty,
    "gates": gate_penalty,
    "flops": flops_penalty,
}
