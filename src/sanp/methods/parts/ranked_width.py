"""Gates that open the first channels of a ranking, with batch norm statistics that go with their number."""

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.spm.saliency import FoldedSaliency, Saliency
from sanp.spm.top_k import TopK

KEPT_WIDTHS = 5
"""widths whose batch norm statistics are kept"""


class RankedSaliency(Saliency):
    """The place of each channel in the ranking, as a number that falls from 1; the same for every image."""

    rank: Tensor

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.register_buffer("rank", torch.linspace(1, 1 / out_channels, out_channels))

    @property
    def flops(self) -> int:
        """0: nothing is computed."""
        return 0

    def set_order(self, values: Tensor) -> None:
        """Ranks the channels by ``values`` (C_out,): the largest is first, of equal ones that which stands first."""
        order = values.sort(stable=True, descending=True).indices
        self.rank[order] = torch.linspace(1, 1 / len(order), len(order)).to(self.rank)

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, C_out)
        """The same numbers for each of the N images."""
        return self.rank.expand(len(x), -1)

    def folded(self) -> FoldedSaliency:
        """The numbers as the bias of the second layer; the input is not used."""
        nothing = self.rank.new_zeros(0, self.in_channels)
        return FoldedSaliency(nothing, nothing[:, 0], self.rank.new_zeros(len(self.rank), 0), self.rank)


class Width(TopK):
    """Opens the first channels of the ranking, and gives batch norms the statistics of the width when it is set.

    The level is the share of closed channels. ``hold`` says which batch norms.
    """

    widths: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__(channels, round_up=True)
        self.norms: tuple[_BatchNorm, ...] = ()
        self.register_buffer("widths", torch.zeros(KEPT_WIDTHS))

    def hold(self, norms: list[_BatchNorm]) -> None:
        """Makes room for the statistics of these batch norms."""
        self.norms = tuple(norms)  # in a tuple, so that they do not become submodules
        for number, norm in enumerate(self.norms):
            self.register_buffer(f"mean_{number}", torch.zeros(KEPT_WIDTHS, norm.num_features))
            self.register_buffer(f"var_{number}", torch.ones(KEPT_WIDTHS, norm.num_features))

    def keep(self, knot: int, width: float) -> None:
        """Keeps the present statistics as those of ``width``; widths ascend with ``knot``."""
        self.widths[knot] = width
        for number, norm in enumerate(self.norms):
            getattr(self, f"mean_{number}")[knot] = norm.running_mean
            getattr(self, f"var_{number}")[knot] = norm.running_var

    def set_level(self, threshold: Tensor, level: float) -> None:
        """Sets the width to 1 - level, and the statistics of the batch norms."""
        super().set_level(threshold, level)
        if not bool(self.widths[-1] > 0):  # none are kept yet
            return
        place = min(max(1 - level, float(self.widths[0])), float(self.widths[-1]))
        above = min(KEPT_WIDTHS - 1, max(1, int(torch.searchsorted(self.widths, place))))
        low, high = float(self.widths[above - 1]), float(self.widths[above])
        part = 1.0 if high <= low else (place - low) / (high - low)
        for number, norm in enumerate(self.norms):
            for name, kept in (("mean", norm.running_mean), ("var", norm.running_var)):
                table = getattr(self, f"{name}_{number}")
                kept.copy_(torch.lerp(table[above - 1], table[above], part))  # type: ignore[union-attr]
