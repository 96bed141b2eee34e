"""The binarization function (paper 3.3): turns saliencies into 0/1 decisions, in a way that can be trained.

Improved Semantic Hashing: z = s + ξ,  s1 = clip(a σ(z) - b, 0, 1),  s2 = 1[s1 > 0.5]. In training the forward uses s1
for some of the samples and s2 for the others; the gradient always flows through s1. Evaluation uses s2 without noise.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from sanp.core.batch_slice import draw_for_batch

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


def hard_decision(saliency: Tensor, *, keep_one: bool = True) -> Tensor:
    """``1[s > 0]``, the same as ``s1 > 0.5`` without noise and with a = 1.2, b = 0.1. No gradient.

    With ``keep_one`` each sample has at least one open channel.
    """
    saliency = saliency.detach()
    decision = (saliency > 0).to(saliency.dtype)  # (N, C_out)
    return at_least_one(decision, saliency) if keep_one else decision


def keep_best(decision: Tensor, score: Tensor, at_most: Tensor) -> Tensor:
    """The decisions (N, C), but at most ``at_most`` (N,) open: the highest scores stay, of equal ones the first."""
    order = torch.where(decision > 0, score, -math.inf).sort(stable=True, dim=1, descending=True).indices
    places = torch.arange(order.shape[1], device=order.device)
    place = torch.empty_like(order).scatter_(1, order, places.expand_as(order))
    return decision * (place < at_most[:, None])


class Drawn(NamedTuple):
    """What a binarizer makes of scores in one training step, (N, C) each."""

    gates: Tensor
    """what the forward uses, with the gradient of s1"""
    decision: Tensor
    """s2: the 0/1 decisions with the noise of this step, no gradient"""
    soft: Tensor | None
    """s1 with the noise of this step, no gradient; None if the binarizer has no soft gates"""


def semantic_hashing(
    saliency: Tensor,
    noise: Tensor | None,
    soft: Tensor,
    slope: float = SLOPE,
    shift: float = SHIFT,
    *,
    keep_one: bool = True,
) -> Drawn:
    """Improved Semantic Hashing in training, with its random draws as arguments.

    ``saliency`` is s (N, C). ``noise`` is ξ (N, C), or None for no noise. ``soft`` is boolean, (N, 1) or (N, C): true
    where the forward uses s1, false where it uses s2. ``slope`` and ``shift`` are a and b of the sigmoid. With
    ``keep_one`` s2 has at least one open channel for each sample.
    """
    z = saliency if noise is None else saliency + noise
    s1 = saturating_sigmoid(z, slope, shift)  # (N, C_out)
    s2 = (s1.detach() > 0.5).to(s1.dtype)
    s2 = at_least_one(s2, z.detach()) if keep_one else s2
    straight_through = s2 + (s1 - s1.detach())  # the value of s2, the gradient of s1
    return Drawn(torch.where(soft, s1, straight_through), s2, s1.detach())


def _randn(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.randn(shape, dtype=like.dtype, device=like.device)


class Binarizer(nn.Module, ABC):
    """Turns scores (N, C) into 0/1 decisions (N, C); in training a subclass may give values between 0 and 1.

    A score is a saliency minus the SPM's threshold and the binarizer's ``edge``: a channel whose score is above 0 is
    open. The *level* of a binarizer is the number that calibration moves:
    the higher it is, the fewer channels are open. By default the level is the SPM's threshold.
    """

    noise: float = 0.0
    """standard deviation of the noise that training adds to the scores"""
    soft_share: float = 0.0
    """share of the samples for which the forward in training uses soft gates"""
    same_in_all_layers: bool = False
    """a level opens the same share of channels in every layer, so calibration must set the same level everywhere"""
    level_is_saliency: bool = True
    """saliencies are compared with the level, so that beyond the lowest and the highest of them it changes nothing"""

    @abstractmethod
    def decide(self, score: Tensor) -> Tensor:
        """The 0/1 decisions (N, C) of evaluation, without a gradient."""

    def draw(self, score: Tensor) -> Drawn:
        """The gates of a training step; by default the decisions of evaluation."""
        decision = self.decide(score)
        return Drawn(decision, decision, None)

    def forward(self, score: Tensor) -> Tensor:  # (N, C_out) -> (N, C_out)
        """The gates: in training those of :meth:`draw`, in evaluation the decisions."""
        return self.draw(score).gates if self.training else self.decide(score)

    @abstractmethod
    def margin(self, score: Tensor) -> Tensor:
        """For each sample (N,), how far its scores are from a different decision."""

    @property
    def edge(self) -> float:
        """The saliency above which a channel is open while the SPM's threshold is 0."""
        return 0.0

    @property
    def fixed_count(self) -> int | None:
        """How many channels are open for every sample; None if that depends on the scores."""
        return None

    @property
    def obstacle(self) -> str | None:
        """Why engines cannot decide as evaluation does; None if they can.

        They know two rules: a fixed number of the highest scores, or all above 0 and the highest where none is.
        """
        return f"the binarizer {type(self).__name__}" if self.fixed_count is None else None

    def level(self, threshold: Tensor) -> float:
        """The present level; ``threshold`` is the SPM's."""
        return threshold.item()

    def set_level(self, threshold: Tensor, level: float) -> None:
        """Sets the level, by changing the SPM's ``threshold`` in place or the binarizer itself."""
        threshold.fill_(level)


class AboveZero(Binarizer):
    """Opens the channels whose score is above 0, in evaluation and, unless a subclass draws, in training.

    With ``keep_one`` each sample has at least one open channel: that of the highest score.
    """

    def __init__(self, *, keep_one: bool = True) -> None:
        super().__init__()
        self.keep_one = keep_one

    def decide(self, score: Tensor) -> Tensor:
        """1 where the score is above 0."""
        return hard_decision(score, keep_one=self.keep_one)

    def margin(self, score: Tensor) -> Tensor:
        """The smallest distance of a score from 0.

        If no score is above 0, the channel with the largest one is open; then the distance of the two largest scores
        counts, or that of the largest from 0 if it is smaller.
        """
        if not self.keep_one:
            return score.abs().amin(1)
        best = score.topk(min(2, score.shape[1]), dim=1).values
        alone = torch.minimum(best[:, 0] - best[:, -1], best[:, 0].abs()) if best.shape[1] > 1 else best[:, 0].abs()
        return torch.where((score > 0).any(1), score.abs().amin(1), alone)

    @property
    def obstacle(self) -> str | None:
        """None, unless every channel may be closed."""
        return None if self.keep_one else "a gate that may close every channel"


class SemanticHashing(AboveZero):
    """Improved Semantic Hashing: in training with random noise and soft gates, in evaluation a plain threshold at 0.

    ``noise`` is the standard deviation of the noise, ``soft_share`` the probability of a soft gate. ``per`` says
    whether soft or hard is drawn for a whole sample or for each channel of it ("element"). ``slope`` and ``shift`` are
    a and b of the sigmoid. With ``keep_one`` each sample has at least one open channel.
    """

    def __init__(
        self,
        *,
        noise: float,
        soft_share: float,
        per: Literal["sample", "element"],
        slope: float = SLOPE,
        shift: float = SHIFT,
        keep_one: bool = True,
    ) -> None:
        super().__init__(keep_one=keep_one)
        self.noise, self.soft_share, self.per = noise, soft_share, per
        self.slope, self.shift = slope, shift

    def draw(self, score: Tensor) -> Drawn:
        """The gates of a training step; those of soft samples lie between 0 and 1."""
        noise = self.noise * draw_for_batch(lambda shape: _randn(shape, score), score.shape) if self.noise else None
        # PAPER 3.3: "half of the time" leaves open of what; GaterNet draws per sample, independently in each layer.
        coins = score.shape if self.per == "element" else (len(score), 1)
        soft = draw_for_batch(lambda shape: torch.rand(shape, device=score.device), coins) < self.soft_share
        saliency = score + self.edge if self.edge else score
        return semantic_hashing(saliency, noise, soft, self.slope, self.shift, keep_one=self.keep_one)

    @property
    def edge(self) -> float:
        """The saliency where s1 is one half: ln((0.5 + b) / (a - b - 0.5)), which is 0 for a = 1.2 and b = 0.1."""
        inside = (0.5 + self.shift) / (self.slope - self.shift - 0.5)
        return 0.0 if abs(inside - 1) < 1e-9 else math.log(inside)

    def extra_repr(self) -> str:
        """The settings that ``print`` shows."""
        return f"noise={self.noise}, soft_share={self.soft_share}, per={self.per!r}"
