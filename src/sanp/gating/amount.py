"""Budgets as a user writes them: a share of the dense FLOPs, a count of FLOPs, or a time."""

import math
import re
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Literal, get_args

import numpy as np

from sanp.core.checks import is_finite
from sanp.core.errors import SanpError, shown

AmountUnit = Literal["share", "flops", "ms"]

_UNITS: dict[str, tuple[AmountUnit, str]] = {
    "%": ("share", "0.01"),
    "k": ("flops", "1e3"),
    "K": ("flops", "1e3"),
    "M": ("flops", "1e6"),
    "G": ("flops", "1e9"),
    "us": ("ms", "0.001"),
    "ms": ("ms", "1"),
    "s": ("ms", "1e3"),
}
_NAMES = get_args(AmountUnit)
_WANTED = 'a share (0.35 or "35%"), a count of multiply-adds ("60M", "1.2G") or, with a latency table, a time ("2.5ms")'


@dataclass(frozen=True)
class Amount:
    """A budget as the user gave it: a share of the dense FLOPs, a count of multiply-adds, or milliseconds."""

    value: float
    unit: AmountUnit

    def kept_of(self, dense_flops: float, latency: "LatencyTable | None" = None) -> float:
        """The amount as a share of ``dense_flops``; a time needs the table ``latency``."""
        if self.unit == "ms" and latency is None:
            raise SanpError(
                f"a budget of {self} is a time, and there is no latency table: set gated.latency to what "
                "sanp.engine.latency_table(gated, images) measures, or give a share or a count"
            )
        if self.unit == "ms" and latency is not None:
            return latency.kept(self.value)
        return self.value if self.unit == "share" else self.value / dense_flops

    def __str__(self) -> str:
        return {"share": f"{self.value:.4g}", "flops": f"{self.value:.6g} FLOPs", "ms": f"{self.value:g}ms"}[self.unit]


@dataclass(frozen=True)
class LatencyTable:
    """Measured times: points (share of the dense FLOPs, milliseconds for one image), joined by straight lines."""

    points: tuple[tuple[float, float], ...]
    """both numbers ascend"""

    def milliseconds(self, kept: float) -> float:
        """The time of one image if the share ``kept`` is computed; outside the measured range, the nearest time."""
        shares, times = zip(*self.points, strict=True)
        return float(np.interp(kept, shares, times))

    def kept(self, milliseconds: float) -> float:
        """The share of the dense FLOPs that takes this time; an error if it is below the shortest measured time."""
        fastest, slowest = self.points[0][1], self.points[-1][1]
        if milliseconds < fastest:
            raise SanpError(
                f"a budget of {milliseconds:g}ms is below {fastest:.3g}ms, the time of {self.points[0][0]:.1%} of the "
                f"FLOPs, the least that was measured (the dense network: {slowest:.3g}ms): give more"
            )
        shares, times = zip(*self.points, strict=True)
        return float(np.interp(milliseconds, times, shares))


def parse_budget(given: object) -> Amount:
    """Reads a budget: a share (``0.35``, ``"35%"``), a count (``"60M"``, ``"1.2G"``) or a time (``"2.5ms"``)."""
    if isinstance(given, Amount):
        return _checked(given, given)
    if isinstance(given, np.floating):
        given = float(given)
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise SanpError(f"budget {shown(given)} is a {type(given).__name__}; wanted: {_WANTED}")
    if not isinstance(given, str):
        return _checked(Amount(float(given) if is_finite(given) else math.inf, "share"), given)
    if ".." in given:
        raise SanpError(
            f"budget {shown(given)} is a range: only a network with the gates of sanp can be trained for one "
            "(sanp.fit, sanp.Budget, sanp train); give a single budget"
        )
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(%|k|K|M|G|us|ms|s)\s*", given)
    if match is not None:
        unit, size = _UNITS[match[2]]
        try:
            value = float(Decimal(match[1]) * Decimal(size))  # 35% is 0.35 exactly
        except DecimalException:  # an exponent of a million
            value = math.inf
        return _checked(Amount(value, unit), given)
    if re.fullmatch(r"\s*0?\.[0-9]+\s*|\s*1(\.0*)?\s*", given) is None:
        raise SanpError(f"budget {shown(given)} cannot be read; wanted: {_WANTED}")
    return _checked(Amount(float(given), "share"), given)


def _checked(amount: Amount, given: object) -> Amount:
    """The amount; an error if it is not a finite number above zero, or a share above one. ``given`` is as it came."""
    if isinstance(amount.value, bool) or not isinstance(amount.value, int | float) or amount.unit not in _NAMES:
        raise SanpError(f"budget {shown(given)} cannot be read; wanted: {_WANTED}")
    if not is_finite(amount.value) or amount.value <= 0:
        raise SanpError(f"budget {shown(given)} is not above zero, or not finite; wanted: {_WANTED}")
    if amount.unit == "share" and amount.value > 1:
        raise SanpError(f"budget {shown(given)} is more than the whole network; wanted: {_WANTED}")
    return amount
