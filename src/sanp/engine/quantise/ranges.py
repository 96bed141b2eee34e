"""The ends of each value's range in bytes, found from a histogram of the value over images."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sanp.core.int8_calibration import Range
from sanp.engine.lowering.shapes import Floats

BINS = 2048
LEVELS = 255
"""steps from the least byte to the largest"""
_EVERY = 8
"""bins from one end that is tried to the next"""
_FEWEST = 64
"""so many bins are a range at least"""


@dataclass(frozen=True)
class Steps:
    """What bytes stand for: (byte - zero) · scale."""

    scale: Floats
    """an array of one number"""
    zero: int

    @classmethod
    def of(cls, ends: Range) -> "Steps":
        """Of a range whose ends are not on the same side of zero; zero itself is a byte."""
        low, top = ends
        scale = max(top - low, 1e-30) / LEVELS
        return cls(np.array([scale], np.float32), min(max(round(-low / scale), 0), LEVELS))


@dataclass
class Histogram:
    """How often the numbers of a value lie in each of :data:`BINS` bins from ``low`` (at most 0) to ``top``."""

    low: float
    top: float
    counts: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))

    def add(self, values: Tensor) -> None:
        """Counts more numbers; zeros are left out, for a byte holds them without error."""
        if self.top > self.low:
            self.counts += torch.histc(values[values != 0], BINS, self.low, self.top).double()

    @property
    def edges(self) -> Tensor:
        """The ends of the bins."""
        return self.low + torch.arange(BINS + 1, dtype=torch.float64) * ((self.top - self.low) / BINS)


def range_of(histogram: Histogram) -> Range:
    """The range with the least mean squared error: smaller ones cut more off, larger ones have wider steps."""
    if float(histogram.counts.sum()) == 0:
        return 0.0, 0.0
    lows, tops, errors = _errors(histogram)
    best = int(errors.argmin())
    return float(lows[best // len(tops)]), float(tops[best % len(tops)])


def _errors(histogram: Histogram) -> tuple[Tensor, Tensor, Tensor]:
    """Ends below and above, and the squared error of each pair (lows, tops).

    It is a twelfth of a squared step inside, and the squared distance outside.
    """
    edges, counts = histogram.edges, histogram.counts
    centres = (edges[1:] + edges[:-1]) / 2
    zero = int((edges < 0).sum())  # the first edge that is not below zero
    below = torch.arange(0, zero + 1, _EVERY) if histogram.low < 0 else torch.zeros(1, dtype=torch.long)
    above = torch.arange(BINS, zero - 1, -_EVERY).flip(0)
    up_to = torch.cat([torch.zeros(1, dtype=torch.float64), counts.cumsum(0)])
    cut_below = torch.stack([(counts[:edge] * (centres[:edge] - edges[edge]) ** 2).sum() for edge in below.tolist()])
    cut_above = torch.stack([(counts[edge:] * (centres[edge:] - edges[edge]) ** 2).sum() for edge in above.tolist()])
    step = (edges[above][None] - edges[below][:, None]) / LEVELS
    inside = (up_to[above][None] - up_to[below][:, None]) * step**2 / 12
    errors = inside + cut_below[:, None] + cut_above[None]
    narrow = above[None] - below[:, None] < _FEWEST
    if not bool(narrow.all()):
        errors[narrow] = float("inf")
    return edges[below].clamp(max=0), edges[above].clamp(min=0), errors
