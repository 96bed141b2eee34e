"""The binarization function (paper 3.3): from saliencies to 0/1 decisions that can be trained.

Improved Semantic Hashing: z = s + ξ,  s1 = clip(a σ(z) - b, 0, 1),  s2 = 1[s1 > 0.5]; s1 goes forward for some of the
samples, s2 for the others, and the gradient always flows through s1. Evaluation: no noise, always s2.
"""

import math
from abc import ABC, abstractmethod
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


class Binarizer(nn.Module, ABC):
    """From scores (N, C) to 0/1 decisions, in evaluation; what training makes of them is the subclass's affair.

    Its *level* is the one number that opens fewer channels the higher it is: here the threshold that the scores were
    measured from, which the SPM keeps.
    """

    noise: float = 0.0
    """deviation of the noise on scores in training"""
    soft_share: float = 0.0
    """share of samples whose soft gates go forward in training"""
    same_in_all_layers: bool = False
    """the level means the same share of channels in every layer, so layers are not moved one by one"""

    @abstractmethod
    def decide(self, score: Tensor) -> Tensor:
        """The decisions (N, C) of evaluation, no gradient."""

    @abstractmethod
    def margin(self, score: Tensor) -> Tensor:
        """How far each sample's closest score is from being decided otherwise (N,)."""

    def soft(self, score: Tensor) -> Tensor | None:
        """s1, through which the gradient flows in training; None where decisions have no soft form."""
        return None

    @property
    def fixed_count(self) -> int | None:
        """How many channels are open for every sample; None where the scores decide that too."""
        return None

    def level(self, threshold: Tensor) -> float:
        """The level, given the SPM's threshold."""
        return threshold.item()

    def set_level(self, threshold: Tensor, level: float) -> None:
        """Sets it, in the SPM's threshold or in itself."""
        threshold.fill_(level)


class SemanticHashing(Binarizer):
    """Draws the noise and the coin of :func:`semantic_hashing` in training; plain thresholding in evaluation."""

    def __init__(self, *, noise: float, soft_share: float, per: Literal["sample", "element"]) -> None:
        super().__init__()
        self.noise, self.soft_share, self.per = noise, soft_share, per

    def forward(self, score: Tensor) -> Tensor:  # (N, C_out) -> (N, C_out)
        """The decisions: 0, 1, or in training something between for the samples whose coin fell on s1."""
        if not self.training:
            return self.decide(score)
        noise = self.noise * draw(lambda shape: _randn(shape, score), score.shape) if self.noise else None
        # PAPER 3.3: "half of the time" is not said per what; GaterNet draws per sample, independently per layer.
        coins = score.shape if self.per == "element" else (len(score), 1)
        soft = draw(lambda shape: torch.rand(shape, device=score.device), coins) < self.soft_share
        return semantic_hashing(score, noise, soft)

    def decide(self, score: Tensor) -> Tensor:
        """``1[s > 0]``, never an empty row."""
        return hard_decision(score)

    def soft(self, score: Tensor) -> Tensor:
        """The saturating sigmoid of the score."""
        return saturating_sigmoid(score)

    def margin(self, score: Tensor) -> Tensor:
        """From 0; where no score is above it the largest is opened, which the second largest may become."""
        best = score.topk(min(2, score.shape[1]), dim=1).values
        alone = torch.minimum(best[:, 0] - best[:, -1], best[:, 0].abs()) if best.shape[1] > 1 else best[:, 0].abs()
        return torch.where((score > 0).any(1), score.abs().amin(1), alone)

    def extra_repr(self) -> str:
        """The settings, as ``print`` shows them."""
        return f"noise={self.noise}, soft_share={self.soft_share}, per={self.per!r}"


def top_k(saliency: Tensor, k: int) -> Tensor:
    """1 for the k most salient channels of each sample and 0 for the others; exactly k also among ties. No gradient."""
    chosen = saliency.detach().topk(k, dim=1).indices
    return torch.zeros_like(saliency).scatter_(1, chosen, 1)


class TopK(Binarizer):
    """The FIXED K ablation (paper 5.1): the same share of channels in each layer, for each sample.

    How many channels win is a number of the network's state. The level is the share of channels that do not win.
    """

    same_in_all_layers = True
    kept: Tensor

    def __init__(self, channels: int, *, density: float = 1.0, round_up: bool = False) -> None:
        super().__init__()
        self.channels, self.round_up = channels, round_up
        self.register_buffer("kept", torch.tensor(self.count(density)))

    @property
    def density(self) -> float:
        """The share of channels that is kept."""
        return int(self.kept) / self.channels

    @density.setter
    def density(self, density: float) -> None:
        self.kept.fill_(self.count(density))

    def count(self, density: float) -> int:
        """How many channels a density means: the nearest number, or the next above; at least one."""
        wanted = density * self.channels
        whole = math.ceil(wanted - 1e-9) if self.round_up else round(wanted)
        return min(self.channels, max(1, whole))

    def forward(self, score: Tensor) -> Tensor:  # (N, C_out) -> (N, C_out)
        """1 for the winners, 0 for the others; among equals exactly as many as there is room for."""
        return self.decide(score)

    def decide(self, score: Tensor) -> Tensor:
        """The same in training and in evaluation."""
        return top_k(score, int(self.kept))

    def margin(self, score: Tensor) -> Tensor:
        """Between the last winner and the first loser; infinite where all win."""
        kept = int(self.kept)
        if kept >= score.shape[1]:
            return torch.full((len(score),), torch.inf)
        ranked = score.sort(1, descending=True).values
        return ranked[:, kept - 1] - ranked[:, kept]

    @property
    def fixed_count(self) -> int:
        """The number of winners."""
        return int(self.kept)

    def level(self, threshold: Tensor) -> float:
        """1 - density; the threshold stays at 0."""
        return 1 - self.density

    def set_level(self, threshold: Tensor, level: float) -> None:
        """Sets the density to 1 - level."""
        self.density = min(1.0, max(0.0, 1 - level))

    def extra_repr(self) -> str:
        """The settings, as ``print`` shows them."""
        return f"density={self.density}"
