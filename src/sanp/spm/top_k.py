"""The binarization of FIXED K (paper 5.1): every sample has the same number of open channels, its best."""

import math

import torch
from torch import Tensor

from sanp.spm.binarize import Binarizer


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
    level_is_saliency = False
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

    def decide(self, score: Tensor) -> Tensor:
        """1 for the open channels, 0 for the others; the same number also if scores are equal."""
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
