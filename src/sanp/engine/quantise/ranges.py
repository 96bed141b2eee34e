"""What the largest byte of each value stands for, found from a histogram of the value over images."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

BINS = 2048
_LEVELS = 255
"""steps from zero to the largest byte"""


@dataclass
class Histogram:
    """How often the numbers of a value, none of them negative, lie in each of :data:`BINS` bins from 0 to ``top``."""

    top: float
    counts: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))

    def add(self, values: Tensor) -> None:
        """Counts more numbers; zeros are left out, for a byte holds them without error."""
        if self.top > 0:
            found = values[values > 0]
            self.counts += torch.histc(found, BINS, 0.0, self.top).double()


def range_of(histogram: Histogram) -> float:
    """The range with the least mean squared error: smaller ones cut more off, larger ones have wider steps."""
    if float(histogram.counts.sum()) == 0:
        return 0.0
    tops, errors = _errors(histogram)
    return float(tops[int(errors.argmin())])


def noise_of(histogram: Histogram, top: float) -> float:
    """The mean squared error of bytes with this range, as a share of the mean square of the numbers."""
    if float(histogram.counts.sum()) == 0:
        return 0.0
    tops, errors = _errors(histogram)
    power = float((histogram.counts * _centres(histogram) ** 2).sum())
    return float(errors[int((tops - top).abs().argmin())]) / power


def _centres(histogram: Histogram) -> Tensor:
    return (torch.arange(BINS, dtype=torch.float64) + 0.5) * (histogram.top / BINS)


def _errors(histogram: Histogram) -> tuple[Tensor, Tensor]:
    """Ranges, and the squared error of each: a twelfth of a squared step inside, the squared distance outside."""
    edges = torch.arange(BINS // 32, BINS + 1, 8)
    tops = edges.double() * (histogram.top / BINS)
    counts, centres = histogram.counts, _centres(histogram)
    inside = torch.cat([torch.zeros(1, dtype=torch.float64), counts.cumsum(0)])[edges]
    cut = torch.stack(
        [(counts[edge:] * (centres[edge:] - top) ** 2).sum() for edge, top in zip(edges, tops, strict=True)]
    )
    return tops, inside * (tops / _LEVELS) ** 2 / 12 + cut
