"""The binarization function (paper 3.3): from saliencies to 0/1 decisions that can be trained.

Improved Semantic Hashing: z = s + ξ,  s1 = clip(a σ(z) - b, 0, 1),  s2 = 1[s1 > 0.5]; s1 goes forward for some of the
samples, s2 for the others, and the gradient always flows through s1. Evaluation: no noise, always s2.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from sanp.core.batch_slice import draw

SLOPE, SHIFT = 1.2, 0.1  # PAPER 3.3: a and b are not given; these are Kaiser and Bengio's


def saturating_sigmoid(z: Tensor, slope: float = SLOPE, shift: float = SHIFT) -> Tensor:
    """``clip(slope σ(z) - shift, 0, 1)``: reaches 0 and 1 at z = ∓ln 11 with the usual constants."""
    return (slope * torch.sigmoid(z) - shift).clamp(0, 1)


def at_least_one(decision: Tensor, saliency: Tensor) -> Tensor:
    """The decisions, with the most salient channel opened wherever a sample would have none: an empty layer is dead."""
    best = torch.zeros_like(decision).scatter_(1, saliency.argmax(1, keepdim=True), 1)
    return torch.where(decision.any(1, keepdim=True), decision, best)


def hard_decision(saliency: Tensor) -> Tensor:
    """``1[s > 0]``, which is what s1 > 0.5 comes to without noise; never an empty row. No gradient."""
    saliency = saliency.detach()
    return at_least_one((saliency > 0).to(saliency.dtype), saliency)  # (N, C_out)


def semantic_hashing(
    saliency: Tensor, noise: Tensor | None, soft: Tensor, slope: float = SLOPE, shift: float = SHIFT
) -> Tensor:
    """Improved Semantic Hashing with the draws given: ``soft`` is true where s1 goes forward, false where s2 does."""
    z = saliency if noise is None else saliency + noise
    s1 = saturating_sigmoid(z, slope, shift)  # (N, C_out)
    s2 = at_least_one((s1.detach() > 0.5).to(s1.dtype), z.detach())
    straight_through = s2 + (s1 - s1.detach())  # the value of s2, the gradient of s1
    return torch.where(soft, s1, straight_through)


def _randn(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.randn(shape, dtype=like.dtype, device=like.device)


class SemanticHashing(nn.Module):
    """Draws the noise and the coin of :func:`semantic_hashing` in training; plain thresholding in evaluation."""

    def __init__(self, *, noise: float, soft_share: float, per: Literal["sample", "element"]) -> None:
        super().__init__()
        self.noise, self.soft_share, self.per = noise, soft_share, per

    def forward(self, saliency: Tensor) -> Tensor:  # (N, C_out) -> (N, C_out)
        """The decisions: 0, 1, or in training something between for the samples whose coin fell on s1."""
        if not self.training:
            return hard_decision(saliency)
        noise = self.noise * draw(lambda shape: _randn(shape, saliency), saliency.shape) if self.noise else None
        # PAPER 3.3: "half of the time" is not said per what; GaterNet draws per sample, independently per layer.
        coins = saliency.shape if self.per == "element" else (len(saliency), 1)
        soft = draw(lambda shape: torch.rand(shape, device=saliency.device), coins) < self.soft_share
        return semantic_hashing(saliency, noise, soft)

    def extra_repr(self) -> str:
        """The settings, as ``print`` shows them."""
        return f"noise={self.noise}, soft_share={self.soft_share}, per={self.per!r}"


def top_k(saliency: Tensor, k: int) -> Tensor:
    """1 for the k most salient channels of each sample and 0 for the others; exactly k also among ties. No gradient."""
    chosen = saliency.detach().topk(k, dim=1).indices
    return torch.zeros_like(saliency).scatter_(1, chosen, 1)


class TopK(nn.Module):
    """The FIXED K ablation (paper 5.1): the same share of channels in each layer, for each sample."""

    def __init__(self, *, density: float) -> None:
        super().__init__()
        self.density = density

    def forward(self, saliency: Tensor) -> Tensor:  # (N, C_out) -> (N, C_out)
        """Keeps ``round(density C_out)`` channels, at least one."""
        return top_k(saliency, max(1, round(self.density * saliency.shape[1])))

    def extra_repr(self) -> str:
        """The settings, as ``print`` shows them."""
        return f"density={self.density}"
