"""Finds the number, such as a threshold or a rate, at which a falling function has a wanted value, or still fits."""

from collections.abc import Callable

Function = Callable[[float], float]


def bisect(
    value_at: Function,
    wanted: float,
    tried: dict[float, float],
    low: float,
    high: float,
    *,
    steps: int,
    close: float,
    narrowest: float = 0.0,
    interpolate: bool = False,
) -> None:
    """Tries numbers between ``low`` and ``high`` until the function's value at one of them is close to ``wanted``.

    ``value_at`` is the function. Its value falls from ``low`` to ``high``; ``low`` may be the larger number. ``tried``
    maps each number tried to its value. At the start it must hold both ends: the value at ``low`` is at least
    ``wanted``, the value at ``high`` at most. Every further number is added to it.

    The search ends when a value is within ``close`` of ``wanted``, when ``tried`` holds ``steps`` numbers, when the
    ends are no more than ``narrowest`` apart, or when no floating point number is left between them.

    Each step halves the interval. With ``interpolate`` every second step, beginning with the first, instead tries the
    point where a straight line between the ends has the wanted value.
    """
    halve = not interpolate
    while len(tried) < steps and min(abs(value - wanted) for value in tried.values()) > close:
        fall = tried[low] - tried[high]
        part = 0.5 if halve or fall <= 0 else min(0.9, max(0.1, (tried[low] - wanted) / fall))
        middle = low + part * (high - low)
        if middle in tried or abs(high - low) <= narrowest:
            break
        tried[middle] = value_at(middle)
        halve = not halve if interpolate else True
        low, high = (middle, high) if tried[middle] > wanted else (low, middle)


def nearest_tried(tried: dict[float, float], wanted: float) -> float:
    """The number in ``tried`` whose value is nearest to ``wanted``."""
    return min(tried, key=lambda number: abs(tried[number] - wanted))


def find_level(value_at: Function, wanted: float, low: float, high: float, steps: int = 40) -> float:
    """The number between ``low`` and ``high`` at which a falling function comes nearest to ``wanted``.

    ``value_at`` is the function. It may fall in steps. Its value at ``low`` is the larger one; ``low`` may be the
    larger number. At most ``steps`` numbers are tried, both ends included.
    """
    tried = {number: value_at(number) for number in (low, high)}
    bisect(value_at, wanted, tried, low, high, steps=steps, close=1e-4)
    return nearest_tried(tried, wanted)


def largest_fitting(fits: Callable[[float], bool], high: float, halvings: int) -> float:
    """The largest number from 0 to ``high`` that fits, to within ``high`` halved so often; 0 is taken to fit.

    ``fits`` is true up to some number, and false above it.
    """
    if fits(high):
        return high
    low = 0.0
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
