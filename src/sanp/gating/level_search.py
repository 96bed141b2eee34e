"""Finds the level, common to all gates, at which a wanted share of the dense FLOPs is computed."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from sanp.core.bisection import bisect

CLOSE = 5e-4
"""the search ends when the share of the dense FLOPs is this close to the wanted one"""
MARGIN = 0.1
"""levels are tried this far outside the saliencies"""
FAR = 5e-3
"""if it is farther off than this with one level for all layers, single layers are opened"""


def levels_between(saliencies: Sequence[Tensor]) -> tuple[float, float]:
    """A level below all these saliencies, and one above."""
    lowest, highest = min(float(each.min()) for each in saliencies), max(float(each.max()) for each in saliencies)
    return lowest - MARGIN, highest + MARGIN


def tried_levels(
    kept_at: Callable[[float], float],
    kept: float,
    start: float,
    steps: int,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    width: float = 0.05,
) -> dict[float, float]:
    """Levels and the share that is kept at each; one of them is near the wanted share if there is such a level.

    Higher levels keep less. The search begins at the level ``start`` and tries at most ``steps`` levels, none of them
    outside ``bounds``: where channels have no say, a search would leave levels that the next one cannot return from.
    ``width`` is its first step.
    """
    lowest, highest = bounds
    start = min(highest, max(lowest, start))
    tried = {start: kept_at(start)}
    low = high = start  # kept_at(low) >= kept >= kept_at(high) after the two loops
    while len(tried) < steps and tried[low] < kept and low > lowest:
        low, width = max(lowest, low - width), 2 * width
        tried[low] = kept_at(low)
    while len(tried) < steps and tried[high] > kept and high < highest:
        high, width = min(highest, high + width), 2 * width
        tried[high] = kept_at(high)
    if tried[low] < kept or tried[high] > kept:
        return tried
    bisect(kept_at, kept, tried, low, high, steps=steps, close=CLOSE, narrowest=1e-7, interpolate=True)
    return tried
