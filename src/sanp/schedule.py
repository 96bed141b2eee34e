"""How a learning rate moves over a stage: a factor of its peak, as a function of the share of the steps done."""

import math
from collections.abc import Callable

Schedule = Callable[[float, int], float]
"""Share of the stage's steps done, and the epoch, to a factor."""


def cosine(rise: float) -> Schedule:
    """Up in a straight line over the first ``rise`` of the steps, then down a half cosine to zero."""

    def factor(progress: float, epoch: int) -> float:
        if progress < rise:
            return max(progress / rise, 0.01)
        return max(0.5 * (1 + math.cos(math.pi * (progress - rise) / (1 - rise))), 0.002)

    return factor


def flat(rise: float, fall: float = 0.2) -> Schedule:
    """Up over the first ``rise`` of the steps, level, and down over the last ``fall`` of them."""

    def factor(progress: float, epoch: int) -> float:
        return max(min(1.0, progress / rise if rise else 1.0, (1 - progress) / fall), 0.01)

    return factor


def step(every: int) -> Schedule:
    """PAPER 4.1.2: a tenth after every so many epochs."""

    def factor(progress: float, epoch: int) -> float:
        return float(0.1 ** (epoch // every))

    return factor
