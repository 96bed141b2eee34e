"""The binarization function (paper 3.3): turns saliencies into 0/1 decisions, in a way that can be trained.

Improved Semantic Hashing: z = s + ξ,  s1 = clip(a σ(z) - b, 0, 1),  s2 = 1[s1 > 0.5]. In training the forward uses s1
for some of the samples and s2 for the others; the gradient always flows through s1. Evaluation uses s2 without noise.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from sanp.core.batch_slice import draw

SLOPE, SHIFT = 1.2, 0.1  # PAPER 3.3: a and b are not given; these are the values of Kaiser and Bengio (2018)


def saturating_sigmoid(z: Tensor, slope: float = SLOPE, shift: float = SHIFT) -> Tensor:
    """``clip(slope σ(z) - shift, 0, 1)``; with the default constants it reaches 0 and 1 at z = ∓ln 11."""
    return (slope * torch.sigmoid(z) - shift).clamp(0, 1)


def at_least_one(decision: Tensor, saliency: Tensor) -> Tensor:
    """The decisions (N, C), with the most salient channel opened for every sample that has no open channel.

    A layer without an open channel would pass nothing on.
    """
    best = torch.zeros_like(decision).scatter_(1, saliency.argmax(1, keepdim=True), 1)
    return torch.where(decision.any(1, keepdim=True), decision, best)


def hard_decision(saliency: Tensor) -> Tensor:
    """``1[s > 0]``, the same as ``s1 > 0.5`` without noise; each sample has at least one open channel. No gradient."""
    saliency = saliency.detach()
    return at_least_one((saliency > 0).to(saliency.dtype), saliency)  # (N, C_out)


def semantic_hashing(
    saliency: Tensor, noise: Tensor | None, soft: Tensor, slope: float = SLOPE, shift: float = SHIFT
) -> Tensor:
    """Improved Semantic Hashing in training, with its random draws as arguments.

    ``saliency`` is s (N, C). ``noise`` is ξ (N, C), or None for no noise. ``soft`` is boolean, (N, 1) or (N, C): true
    where the forward uses s1, false where it uses s2. ``slope`` and ``shift`` are a and b of the sigmoid.
    """
    z = saliency if noise is None else saliency + noise
    s1 = saturating_sigmoid(z, slope, shift)  # (N, C_out)
    s2 = at_least_one((s1.detach() > 0.5).to(s1.dtype), z.detach())
    straight_through = s2 + (s1 - s1.detach())  # the value of s2, the gradient of s1
    return torch.where(soft, s1, straight_through)


def _randn(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.randn(shape, dtype=like.dtype, device=like.device)


class Binarizer(nn.Module, ABC):
    """Turns scores (N, C) into 0/1 decisions (N, C); in training a subclass may give values between 0 and 1.

    A score is a saliency minus the SPM's threshold. The *level* of a binarizer is the number that calibration moves:
    the higher it is, the fewer channels are open. By default the level is the SPM's threshold.
    """

    noise: float = 0.0
    """standard deviation of the noise that training adds to the scores"""
    soft_share: float = 0.0
    """share of the samples for which the forward in training uses soft gates"""
    same_in_all_layers: bool = False
    """a level opens the same share of channels in every layer, so calibration must set the same level everywhere"""

    @abstractmethod
    def decide(self, score: Tensor) -> Tensor:
        """The 0/1 decisions (N, C) of evaluation, without a gradient."""

    @abstractmethod
    def margin(self, score: Tensor) -> Tensor:
        """For each sample (N,), how far its scores are from a different decision."""

    def soft(self, score: Tensor) -> Tensor | None:
        """s1, the gates through which the gradient flows in training; None if the binarizer has no soft gates."""
        return None

    @property
    def fixed_count(self) -> int | None:
        """How many channels are open for every sample; None if that depends on the scores."""
        return None

    def level(self, threshold: Tensor) -> float:
        """The present level; ``threshold`` is the SPM's."""
        return threshold.item()

    def set_level(self, threshold: Tensor, level: float) -> None:
        """Sets the level, by changing the SPM's ``threshold`` in place or the binarizer itself."""
        threshold.fill_(level)


class SemanticHashing(Binarizer):
    """Improved Semantic Hashing: in training with random noise and soft gates, in evaluation a plain threshold at 0.

    ``noise`` is the standard deviation of the noise, ``soft_share`` the probability of a soft gate. ``per`` says
    whether soft or hard is drawn for a whole sample or for each channel of it ("element").
    """

    def __init__(self, *, noise: float, soft_share: float, per: Literal["sample", "element"]) -> None:
        super().__init__()
        self.noise, self.soft_share, self.per = noise, soft_share, per

    def forward(self, score: Tensor) -> Tensor:  # (N, C_out) -> (N, C_out)
        """The decisions; in training those of soft samples lie between 0 and 1."""
        if not self.training:
            return self.decide(score)
        noise = self.noise * draw(lambda shape: _randn(shape, score), score.shape) if self.noise else None
        # PAPER 3.3: "half of the time" leaves open of what; GaterNet draws per sample, independently in each layer.
        coins = score.shape if self.per == "element" else (len(score), 1)
        soft = draw(lambda shape: torch.rand(shape, device=score.device), coins) < self.soft_share
        return semantic_hashing(score, noise, soft)

    def decide(self, score: Tensor) -> Tensor:
        """1 where the score is above 0; at least one open channel for each sample."""
        return hard_decision(score)

    def soft(self, score: Tensor) -> Tensor:
        """The saturating sigmoid of the score."""
        return saturating_sigmoid(score)

    def margin(self, score: Tensor) -> Tensor:
        """The smallest distance of a score from 0.

        If no score is above 0, the channel with the largest one is open; then the distance of the two largest scores
        counts, or that of the largest from 0 if it is smaller.
        """
        best = score.topk(min(2, score.shape[1]), dim=1).values
        alone = torch.minimum(best[:, 0] - best[:, -1], best[:, 0].abs()) if best.shape[1] > 1 else best[:, 0].abs()
        return torch.where((score > 0).any(1), score.abs().amin(1), alone)

    def extra_repr(self) -> str:
        """The settings that ``print`` shows."""
        return f"noise={self.noise}, soft_share={self.soft_share}, per={self.per!r}"


def top_k(saliency: Tensor, k: int) -> Tensor:
    """1 for the ``k`` most salient channels of each sample, 0 for the others; exactly k even with ties, no gradient."""
    chosen = saliency.detach().topk(k, dim=1).indices
    return torch.zeros_like(saliency).scatter_(1, chosen, 1)


class TopK(Binarizer):
    """Opens the channels with the highest scores, the same number for every sample (FIXED K, paper 5.1).

    ``channels`` is the number of scores of a sample, ``density`` the share of them that is opened; ``round_up`` rounds
    their number up instead of to the nearest. The number of open channels is a buffer, so that it is saved with the
    network. The level is the share of closed channels.
    """

    same_in_all_layers = True
    kept: Tensor

    def __init__(self, channels: int, *, density: float = 1.0, round_up: bool = False) -> None:
        super().__init__()
        self.channels, self.round_up = channels, round_up
        self.register_buffer("kept", torch.tensor(self.count(density)))

    @property
    def density(self) -> float:
        """The share of channels that is open."""
        return int(self.kept) / self.channels

    @density.setter
    def density(self, density: float) -> None:
        self.kept.fill_(self.count(density))

    def count(self, density: float) -> int:
        """The number of open channels for a density, rounded; at least one."""
        wanted = density * self.channels
        whole = math.ceil(wanted - 1e-9) if self.round_up else round(wanted)
        return min(self.channels, max(1, whole))

    def forward(self, score: Tensor) -> Tensor:  # (N, C_out) -> (N, C_out)
        """1 for the open channels, 0 for the others; the same number also if scores are equal."""
        return self.decide(score)

    def decide(self, score: Tensor) -> Tensor:
        """As :meth:`forward`: training and evaluation do not differ."""
        return top_k(score, int(self.kept))

    def margin(self, score: Tensor) -> Tensor:
        """The distance between the lowest score of an open channel and the highest of a closed one; else infinite."""
        kept = int(self.kept)
        if kept >= score.shape[1]:
            return torch.full((len(score),), torch.inf)
        ranked = score.sort(1, descending=True).values
        return ranked[:, kept - 1] - ranked[:, kept]

    @property
    def fixed_count(self) -> int:
        """The number of open channels."""
        return int(self.kept)

    def level(self, threshold: Tensor) -> float:
        """1 - density; the SPM's threshold stays at 0."""
        return 1 - self.density

    def set_level(self, threshold: Tensor, level: float) -> None:
        """Sets the density to 1 - level."""
        self.density = min(1.0, max(0.0, 1 - level))

    def extra_repr(self) -> str:
        """The settings that ``print`` shows."""
        return f"density={self.density}"
