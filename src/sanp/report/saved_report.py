"""A run's report.json as a Report; numbers that no evaluation can give are refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sanp.core.errors import shown
from sanp.core.limits import LARGEST_COUNT, LONGEST_LABEL, MOST_CLASSES, MOST_LAYERS
from sanp.evaluation import LayerReport, Report

COUNTS = ("channels", "never", "sometimes", "always", "dense_flops")


def parse_report(found: Mapping[str, Any]) -> Report:
    """The report from its own JSON; a ValueError, KeyError, TypeError or OverflowError where that is damaged."""
    if len(found["layers"]) > MOST_LAYERS or len(found["confusion"]) > MOST_CLASSES:
        raise ValueError(f"more than {MOST_LAYERS} layers or {MOST_CLASSES} classes")
    layers = tuple(
        LayerReport(
            name=name_of(layer["name"]),
            kept=share(layer["kept"]),
            flops=as_count(layer["flops"]),
            **{name: int(as_count(layer[name])) for name in COUNTS},
        )
        for layer in found["layers"]
    )
    confusion = np.asarray(found["confusion"], dtype=np.int64)
    per_sample = np.asarray(found["per_sample"], dtype=np.float64)
    if not all(layer.channels > 0 and layer.dense_flops > 0 for layer in layers):
        raise ValueError("a layer has no channels or no FLOPs")
    if any(layer.never + layer.sometimes + layer.always != layer.channels for layer in layers):
        raise ValueError("a layer has more or fewer channels than are never, sometimes and always pruned")
    if not layers or confusion.ndim != 2 or per_sample.ndim != 1 or not len(per_sample):
        raise ValueError("layers, confusion or per_sample is empty or of the wrong shape")
    if confusion.shape[0] != confusion.shape[1] or (confusion < 0).any():
        raise ValueError("confusion is not square, or counts fewer than no images")
    if not are_counts(per_sample):
        raise ValueError("per_sample holds what is not a count")
    return Report(
        accuracy=share(found["accuracy"]),
        flops=as_count(found["flops"]),
        paper_flops=as_count(found["paper_flops"]),
        dense_flops=max(1, int(as_count(found["dense_flops"]))),
        overhead_flops=int(as_count(found["overhead_flops"])),
        per_sample=per_sample,
        layers=layers,
        confusion=confusion,
    )


def name_of(value: Any) -> str:
    """The value, if it can be the name of a layer."""
    if not isinstance(value, str) or len(value) > LONGEST_LABEL:
        raise ValueError(f"{shown(value)} is no name of a layer")
    return value


def as_count(value: Any) -> float:
    """The value as a number, if it can be a number of channels or FLOPs."""
    number = float(value)
    if not 0 <= number <= LARGEST_COUNT:
        raise ValueError(f"{shown(value)} is not a count")
    return number


def are_counts(values: npt.NDArray[Any]) -> bool:
    """Whether all values can be FLOPs of one image: 0, or from 1 to the largest count."""
    return bool(((values == 0) | ((values >= 1) & (values <= LARGEST_COUNT))).all())  # NaN is neither


def share(value: Any) -> float:
    """The value as a number, if it lies between 0 and 1."""
    number = as_count(value)
    if number > 1 + 1e-9:  # a mean of ones may be rounded up
        raise ValueError(f"{shown(value)} is not a share")
    return number
