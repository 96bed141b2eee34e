"""The one number by which a method prunes more or less, such as a threshold or rate: set so that the budget is met."""

from collections.abc import Callable

from sanp.core.errors import SanpError

STEPS = 40


def find_level(cost_at: Callable[[float], float], share: float, low: float, high: float, steps: int = STEPS) -> float:
    """Bisects the level whose cost, a share of the dense FLOPs, is nearest to the wanted one.

    The cost must fall from ``low`` to ``high`` (which may be the smaller number); it may fall in steps.
    """
    tried = {level: cost_at(level) for level in (low, high)}
    while len(tried) < steps and min(abs(cost - share) for cost in tried.values()) > 1e-4:
        middle = (low + high) / 2
        if middle in tried:  # the two are neighbouring numbers
            break
        tried[middle] = cost_at(middle)
        low, high = (middle, high) if tried[middle] > share else (low, middle)
    return min(tried, key=lambda level: abs(tried[level] - share))


def check_reach(least: float, share: float, method: str) -> None:
    """An error, before anything is trained, for a budget below the least that a method can come to."""
    if share < least:
        raise SanpError(
            f"a budget of {share:.1%} of the dense FLOPs is below the {least:.1%} that {method} can come to on this "
            "network: give at least that, or choose a method that gates every layer, such as sanp"
        )
