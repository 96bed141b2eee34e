"""The one number, such as a threshold or a rate, at which something that falls with it has a wanted value."""

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
    """Adds numbers between ``low`` and ``high`` to ``tried``, with their values, until one of those is near enough.

    ``tried`` has both ends: the value at ``low`` is at least the wanted one, that at ``high`` at most; ``low`` may be
    the larger number. It ends when a value is within ``close`` of the wanted one, ``steps`` numbers have been tried, or
    the ends are neighbours or not more than ``narrowest`` apart. ``interpolate`` halves only every second time, and
    else goes where a straight line between the ends has the wanted value.
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


def nearest(tried: dict[float, float], wanted: float) -> float:
    """The number whose value is nearest to the wanted one."""
    return min(tried, key=lambda number: abs(tried[number] - wanted))


def find_level(value_at: Function, wanted: float, low: float, high: float, steps: int = 40) -> float:
    """The number between two at which a falling function comes nearest to a value; it may fall in steps."""
    tried = {number: value_at(number) for number in (low, high)}
    bisect(value_at, wanted, tried, low, high, steps=steps, close=1e-4)
    return nearest(tried, wanted)
