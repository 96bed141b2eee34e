"""The dial of a network that was trained for a range of budgets: which threshold has which cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sanp.core.checks import as_number
from sanp.core.errors import SanpError
from sanp.core.limits import LARGEST_NUMBER

if TYPE_CHECKING:
    from sanp.gating.network import GatedNetwork

POINTS = 17
"""costs that are measured between the two ends of a range"""
EDGE = 0.01
"""share of the dense FLOPs by which a budget may lie outside the range: it then gets the nearest end"""


@dataclass(frozen=True)
class Dial:
    """Measured points of a network: a common threshold of all layers, and the share of the dense FLOPs it leaves.

    Between the points the threshold is interpolated. A layer's own threshold for a budget is in the biases of its
    saliencies, which training has moved.
    """

    shares: tuple[float, ...]
    """of the dense FLOPs; they ascend"""
    thresholds: tuple[float, ...]
    """of all layers; they descend"""

    def __post_init__(self) -> None:
        shares, thresholds = np.array(self.shares, float), np.array(self.thresholds, float)
        finite = bool(np.isfinite(shares).all() and (np.abs(thresholds) <= LARGEST_NUMBER).all())
        rising = finite and bool((np.diff(shares) > 0).all() and (np.diff(thresholds) < 0).all())
        if len(shares) != len(thresholds) or len(shares) < 2 or not rising or shares[0] <= 0 or shares[-1] > 1:
            raise SanpError("a dial wants at least two shares of the FLOPs that ascend, and thresholds that descend")

    @property
    def low(self) -> float:
        """The smallest budget of the range, as a share of the dense FLOPs."""
        return self.shares[0]

    @property
    def high(self) -> float:
        """The largest budget of the range, as a share of the dense FLOPs."""
        return self.shares[-1]

    def covers(self, kept: float) -> bool:
        """Whether the range has the share ``kept`` of the dense FLOPs."""
        return self.low - EDGE <= kept <= self.high + EDGE

    def check(self, kept: float) -> None:
        """Raises an error for a share of the dense FLOPs that is outside the range."""
        if not self.covers(kept):
            raise SanpError(
                f"a budget of {kept:.1%} of the dense FLOPs is outside {self.low:.1%} to {self.high:.1%}, the range "
                "that this network was trained for: give one of the range, or train it for a wider one"
            )

    def threshold(self, kept: float) -> float:
        """The threshold at which the share ``kept`` of the dense FLOPs is computed; at most that of an end."""
        return float(np.interp(kept, self.shares, self.thresholds))


def read_dial(given: Mapping[str, Any]) -> Dial:
    """A dial from the plain values of a file; an error if they make none."""
    shares, thresholds = (tuple(map(as_number, given[name])) for name in ("shares", "thresholds"))
    return Dial(shares, thresholds)


def set_level(network: "GatedNetwork", level: float) -> None:
    """Gives the gates of all layers the same level, which for those of a dial is a threshold."""
    for layer in network.layers.values():
        layer.spm.level = level


def measured_dial(
    kept_at: Callable[[float], float], low: tuple[float, float], high: tuple[float, float], points: int = POINTS
) -> Dial:
    """A dial from the costs at thresholds that lie evenly between those of the two ends.

    ``kept_at`` gives the share of the dense FLOPs at a threshold. ``low`` and ``high`` are the ends, each a threshold
    and the share that was measured there.
    """
    between = np.linspace(low[0], high[0], points)[1:-1]
    found = [low, *((float(level), kept_at(float(level))) for level in between), high]
    kept = [found[0]]
    for level, share in found[1:]:
        if share > kept[-1][1] and level < kept[-1][0]:
            kept.append((level, share))
    if len(kept) < 2:
        raise SanpError("the cost is the same at both ends of the range of budgets: train the network for the range")
    return Dial(tuple(share for _, share in kept), tuple(level for level, _ in kept))
