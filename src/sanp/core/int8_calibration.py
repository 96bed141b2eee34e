"""What a network keeps of its calibration for int8: ranges of values, and which layers stay in fp32."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from sanp.core.errors import SanpError, shown

_ATTRIBUTE = "int8_calibration"
Range = tuple[float, float]
"""the numbers that the least and the largest byte of a value stand for; the first is 0 for a value that is never
negative"""


@dataclass(frozen=True)
class Int8Calibration:
    """What was found on the calibration's samples; it goes with a network's copies and files."""

    ranges: Mapping[str, Range]
    """by the value's name"""
    errors: Mapping[str, float] = field(default_factory=dict)
    """what int8 changes of each convolution's output, as a share of that output's spread"""
    fp32: tuple[str, ...] = ()
    """convolutions that stay in fp32 because int8 changes them too much"""

    def as_dict(self) -> dict[str, Any]:
        """For the header of a file."""
        ranges = {name: list(ends) for name, ends in self.ranges.items()}
        return {"ranges": ranges, "errors": dict(self.errors), "fp32": list(self.fp32)}


def keep_calibration(network: nn.Module, found: Int8Calibration | None) -> None:
    """Lets a network keep its calibration, or none."""
    if found is not None or kept_calibration(network) is not None:
        setattr(network, _ATTRIBUTE, found)


def kept_calibration(network: nn.Module) -> Int8Calibration | None:
    """What a network keeps; None if it was never calibrated for int8."""
    kept: Int8Calibration | None = getattr(network, _ATTRIBUTE, None)
    return kept


def read_calibration(given: Any) -> Int8Calibration | None:
    """A calibration as a file has it; an error if it is anything else."""
    if given is None:
        return None
    if not isinstance(given, dict) or not set(given) <= {"ranges", "errors", "fp32"}:
        raise SanpError(f"int8 is {shown(given)}: wanted are ranges, errors and fp32")
    ranges, errors = _named(given.get("ranges", {}), "ranges"), _named(given.get("errors", {}), "errors")
    fp32 = given.get("fp32", [])
    if not isinstance(fp32, list) or not all(isinstance(name, str) for name in fp32):
        raise SanpError(f"int8's fp32 is {shown(fp32)}: wanted are names of layers")
    return Int8Calibration(
        {name: _range(name, ends) for name, ends in ranges.items()},
        {name: _number(name, share) for name, share in errors.items()},
        tuple(fp32),
    )


def _named(given: Any, what: str) -> dict[str, Any]:
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise SanpError(f"int8's {what} are {shown(given)}: wanted are numbers by name")
    return given


def _range(name: str, ends: Any) -> Range:
    if not isinstance(ends, list) or len(ends) != 2:
        raise SanpError(f"int8's range of {name} is {shown(ends)}: wanted are its two ends")
    low, top = -_number(name, _negative(ends[0])), _number(name, ends[1])
    return low + 0.0, top


def _negative(number: Any) -> Any:
    return -number if isinstance(number, int | float) and not isinstance(number, bool) else number


def _number(name: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1e38 or math.isnan(given):
        raise SanpError(
            f"int8's number for {name} is {shown(given)}: wanted is one that is finite, with the right sign"
        )
    return float(given)
