"""An SPM that chooses one of a few widths for each sample, instead of a decision for each channel (RNP, D2NN)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sanp.core.batch_slice import draw_for_batch
from sanp.spm.binarize import Binarizer
from sanp.spm.module import SPM
from sanp.spm.recording import Gates
from sanp.spm.saliency import Saliency
from sanp.spm.top_k import top_k


@dataclass(frozen=True)
class ChosenWidth(Gates):
    """The gates of a layer, and the choice that they came from."""

    values: Tensor
    """Q (N, widths), with its gradient"""
    action: Tensor
    """(N,): the number of the width that was chosen, the best one or a random one"""
    width: Tensor
    """(N,): the share of channels that this width computes"""


def first_channels(channels: int, widths: tuple[float, ...]) -> Tensor:
    """The gates (widths, C) of each width: 1 for the first ``round(width C)`` channels, at least one."""
    counts = [max(1, round(width * channels)) for width in widths]
    return torch.stack([(torch.arange(channels) < count).float() for count in counts])


class BestWidth(Binarizer):
    """Chooses the width of highest score, instead of a decision for each channel. The level is a price."""

    level_is_saliency = False

    def decide(self, score: Tensor) -> Tensor:
        """(N, widths): 1 for the chosen width of each sample, 0 for the others."""
        return top_k(score, 1)

    def margin(self, score: Tensor) -> Tensor:
        """The distance between the two highest scores of each sample (N,)."""
        best = score.topk(2, dim=1).values
        return best[:, 0] - best[:, 1]


class ChoosingSPM(SPM):
    """An SPM that chooses the width of highest value minus price; in training a random one for some samples.

    ``values`` predicts the value of each width. ``channels`` is the number of output channels of the layer, ``widths``
    the shares of them to choose from. The price of a width is the threshold times the width.
    """

    table: Tensor
    widths: Tensor

    def __init__(self, values: Saliency, channels: int, widths: tuple[float, ...]) -> None:
        super().__init__(values, BestWidth())
        self.register_buffer("table", first_channels(channels, widths))
        self.register_buffer("widths", torch.tensor(widths))
        self.explore = 0.0
        """ε: the share of the samples for which training chooses a random width"""

    def forward(self, x: Tensor) -> ChosenWidth:  # (N, C_in, ...)
        """The choice for each sample; the features of open channels are not scaled."""
        values = self.saliency(x.detach())  # (N, widths)
        best = (values.detach() - self.threshold * self.widths).argmax(1)
        action = best
        if self.training and self.explore:
            random = draw_for_batch(
                lambda shape: torch.randint(len(self.widths), shape, device=best.device), best.shape
            )
            coins = draw_for_batch(lambda shape: torch.rand(shape, device=best.device), best.shape)
            action = torch.where(coins < self.explore, random, best)
        table = self.table.to(values.dtype)
        return ChosenWidth(
            torch.ones_like(table[best]), table[best], table[action], values, action, self.widths[action]
        )

    def score(self, gates: Gates) -> Tensor:
        """Each width's value less its price (N, widths)."""
        assert isinstance(gates, ChosenWidth)
        return gates.values - self.threshold * self.widths
