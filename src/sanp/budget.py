"""The computation budget and the weight λ that follows the gap to it (paper 3.4, eq. 12): plain numbers, no tensors."""

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from sanp.checked import check_fields
from sanp.errors import SanpError

Unit = Literal["share", "flops", "ms"]

_UNITS: dict[str, tuple[Unit, str]] = {
    "%": ("share", "0.01"),
    "k": ("flops", "1e3"),
    "K": ("flops", "1e3"),
    "M": ("flops", "1e6"),
    "G": ("flops", "1e9"),
    "us": ("ms", "0.001"),
    "ms": ("ms", "1"),
    "s": ("ms", "1e3"),
}
_WANTED = 'a share (0.35 or "35%"), a count of multiply-adds ("60M", "1.2G") or, with a latency table, a time ("2.5ms")'


@dataclass(frozen=True)
class Amount:
    """A budget as the user gave it: a share of the dense cost, a number of multiply-adds, or milliseconds."""

    value: float
    unit: Unit

    def share_of(self, dense_flops: float, latency: "LatencyTable | None" = None) -> float:
        """The share of the dense FLOPs that this amount is; a time needs a latency table."""
        if self.unit == "ms" and latency is None:
            raise SanpError(
                f"a budget of {self} is a time, and there is no latency table: set gated.latency to what "
                "sanp.engine.latency_table(gated, images) measures, or give a share or a count"
            )
        if self.unit == "ms" and latency is not None:
            return latency.share(self.value)
        return self.value if self.unit == "share" else self.value / dense_flops

    def __str__(self) -> str:
        return {"share": f"{self.value:.4g}", "flops": f"{self.value:.6g} FLOPs", "ms": f"{self.value:g}ms"}[self.unit]


@dataclass(frozen=True)
class LatencyTable:
    """Measured points (share of the dense FLOPs, milliseconds an image), joined by straight lines."""

    points: tuple[tuple[float, float], ...]
    """in ascending order of both"""

    def milliseconds(self, share: float) -> float:
        """The time that a share takes; outside the measured shares that of the nearest one."""
        return _between(self.points, share)

    def share(self, milliseconds: float) -> float:
        """The share that can be had for a time; one below the fastest that was measured is an error."""
        fastest, slowest = self.points[0][1], self.points[-1][1]
        if milliseconds < fastest:
            raise SanpError(
                f"a budget of {milliseconds:g}ms is below {fastest:.3g}ms, the time of {self.points[0][0]:.1%} of the "
                f"FLOPs, the least that was measured (the dense network: {slowest:.3g}ms): give more"
            )
        return _between([(time, share) for share, time in self.points], milliseconds)


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    """Linear interpolation; the end values outside."""
    place = bisect_left([x for x, _ in points], at)
    if place == 0:
        return points[0][1]
    if place == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[place - 1], points[place]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0) if x1 > x0 else y1


def parse_budget(given: object) -> Amount:
    """Reads a budget: ``0.35``, ``"35%"``, ``"60M"``, ``"1.2G"`` or ``"2.5ms"``."""
    if isinstance(given, Amount):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise SanpError(f"budget {given!r} is a {type(given).__name__}; wanted: {_WANTED}")
    if isinstance(given, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(%|k|K|M|G|us|ms|s)\s*", given)
        if match is None:
            plain = re.fullmatch(r"\s*0?\.[0-9]+\s*|\s*1(\.0*)?\s*", given)
            if plain is None:
                raise SanpError(f"budget {given!r} cannot be read; wanted: {_WANTED}")
            amount = Amount(float(given), "share")
        else:
            unit, size = _UNITS[match[2]]
            amount = Amount(float(Decimal(match[1]) * Decimal(size)), unit)  # 35% is 0.35 exactly
    else:
        amount = Amount(float(given), "share")
    if not math.isfinite(amount.value) or amount.value <= 0:
        raise SanpError(f"budget {given!r} is not above zero; wanted: {_WANTED}")
    if amount.unit == "share" and amount.value > 1:
        raise SanpError(f"budget {given!r} is more than the whole network; wanted: {_WANTED}")
    return amount


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """How λ follows the gap between the running cost and the target, both as shares of the dense cost."""

    strength: float = 100.0
    """λ0: the weight at a gap of the whole network (paper: 0.01)"""
    lowest: float = -2.0
    """λ is not let below this; a large negative weight throws channels open all at once"""
    highest: float = 4.0
    """λ is not let above this; an unbounded one drowns the task"""
    memory: float = 0.7
    """how much of the running cost is kept at each step"""
    anneal: float = 0.5
    """the target falls from 1 to the budget over this share of the steps"""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.strength > 0:
            raise SanpError(f"strength {self.strength} must be above 0: it is the weight of the cost loss")
        if not self.lowest <= 0 <= self.highest:
            raise SanpError(
                f"λ must be able to be 0: lowest {self.lowest} <= 0 <= highest {self.highest} does not hold"
            )
        if not 0 <= self.memory < 1:
            raise SanpError(f"memory {self.memory} must be in [0, 1): it is the share of the running cost that is kept")
        if not 0 <= self.anneal <= 1:
            raise SanpError(f"anneal {self.anneal} must be in [0, 1]: it is a share of the steps")


class BudgetController:
    """Eq. 12 with a running mean: λ = λ0 (p_t - p), p_t and p as shares of the dense cost, clipped."""

    def __init__(self, target: float, config: ControllerConfig) -> None:
        self.target = target
        self.config = config
        self.running_cost: float | None = None
        self.cost_weight = 0.0

    def target_at(self, progress: float) -> float:
        """The target after this share of the steps: from 1 down to the budget, then the budget."""
        if self.config.anneal == 0:
            return self.target
        return 1 - (1 - self.target) * min(1.0, progress / self.config.anneal)

    def update(self, cost: float, progress: float = 1.0) -> float:
        """Takes the cost of one step (a share), gives the λ for it."""
        keep = self.config.memory
        self.running_cost = cost if self.running_cost is None else keep * self.running_cost + (1 - keep) * cost
        gap = self.running_cost - self.target_at(progress)
        self.cost_weight = min(self.config.highest, max(self.config.lowest, self.config.strength * gap))
        return self.cost_weight

    def state(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        return {"running_cost": self.running_cost, "cost_weight": self.cost_weight}

    def restore(self, state: dict[str, float | None]) -> None:
        """Goes on where :meth:`state` was taken."""
        self.running_cost = state["running_cost"]
        self.cost_weight = state["cost_weight"] or 0.0
