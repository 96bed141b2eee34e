"""The ranges that a network keeps for int8: what the largest byte of each value stands for, by the value's name."""

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from sanp.core.errors import SanpError, shown

_ATTRIBUTE = "int8_ranges"


def keep_ranges(network: nn.Module, ranges: Mapping[str, float] | None) -> None:
    """Lets a network keep ranges, or none; they go with its copies and its files."""
    if ranges is not None or kept_ranges(network) is not None:
        setattr(network, _ATTRIBUTE, None if ranges is None else dict(ranges))


def kept_ranges(network: nn.Module) -> dict[str, float] | None:
    """The ranges that a network keeps; None if it was never calibrated for int8."""
    kept: dict[str, float] | None = getattr(network, _ATTRIBUTE, None)
    return kept


def checked_ranges(given: Any) -> dict[str, float] | None:
    """Ranges as a file has them; an error if they are anything else."""
    if given is None:
        return None
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise SanpError(f"int8_ranges are {shown(given)}: wanted are numbers by name")
    for name, top in given.items():
        if isinstance(top, bool) or not isinstance(top, int | float) or not (top >= 0 and math.isfinite(top)):
            raise SanpError(f"int8_ranges of {name} are {shown(top)}: wanted is a number that is not negative")
    return {name: float(top) for name, top in given.items()}
