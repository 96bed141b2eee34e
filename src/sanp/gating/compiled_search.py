"""Calibrates thresholds by a compiled copy of the network: first on few images, then in a few runs on all."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sanp.core.bisection import nearest_tried
from sanp.core.later import later
from sanp.gating.dial import set_level
from sanp.gating.level_search import FAR, levels_between, tried_levels

if TYPE_CHECKING:
    from sanp.gating.network import GatedNetwork

BEGIN_ON = 64
"""images that the search begins on"""
TRIED, TRIED_ON_ALL = 20, 8
"""levels that are tried on few images, and on all"""
FIRST_CHANGE = 4e-3
"""share of the dense FLOPs that a first step on all images shall change, for which the few tell the width"""


def calibrate_compiled(network: "GatedNetwork", kept: float, batches: list[Any]) -> float | None:
    """Sets the level of all layers so that the share ``kept`` of the dense FLOPs is computed for these batches.

    Returns the share that was reached, which may be far off where the level ends at the lowest or highest saliency.
    None if the engine cannot tell, or if costs jump over ``kept`` between two levels, and torch has to look; the levels
    are then still those of before, or all as that of the first layer.
    """
    costs = later("compiled costs")(network, batches)
    if costs is None:
        return None
    level = float(next(iter(network.layers.values())).spm.level)
    few = costs.first(BEGIN_ON)
    try:
        bounds = levels_between(few.saliencies())
        rough = tried_levels(few.kept_at, kept, level, TRIED, bounds)
        start, width = nearest_tried(rough, kept), first_step(rough, kept)
        tried = tried_levels(costs.kept_at, kept, start, TRIED_ON_ALL, bounds, width)
    except costs.cannot_tell:
        return None
    near = nearest_tried(tried, kept)
    if abs(tried[near] - kept) > FAR and near not in bounds:
        return None
    set_level(network, near)
    return tried[near]


def first_step(tried: dict[float, float], kept: float) -> float:
    """How far a level has to move to change the cost by ``FIRST_CHANGE``, as ``tried`` shows it around ``kept``."""
    levels = sorted(tried)
    around = [pair for pair in pairwise(levels) if tried[pair[0]] >= kept >= tried[pair[1]]]
    low, high = around[0] if around else (levels[0], levels[-1])
    fall = tried[low] - tried[high]
    return min(0.05, max(1e-4, FIRST_CHANGE * (high - low) / fall)) if fall > 0 else 0.05
