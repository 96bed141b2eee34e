"""Everything that a page tells of a run, read from its folder and checked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sanp.core.errors import SanpError
from sanp.evaluation import LayerReport, Report
from sanp.experiments.metrics import read_metrics
from sanp.experiments.recipe import Recipe
from sanp.experiments.run_folder import REPORT, read_report, read_run
from sanp.gating.amount import parse_budget
from sanp.report.study import Study, study


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A line of metrics.jsonl; shares of the dense FLOPs, and None for what was not measured."""

    stage: str
    step: int
    """steps since the beginning of the run"""
    accuracy: float | None
    test_accuracy: float | None
    cost: float | None
    target: float | None
    test_kept: float | None
    cost_weight: float | None


MEASURED = ("accuracy", "test_accuracy", "cost", "target", "test_kept", "cost_weight")
COUNTS = ("channels", "never", "sometimes", "always", "dense_flops")
LARGEST = 1e15
"""FLOPs or steps; a larger number is damage"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A finished run, as a page needs it."""

    folder: Path
    name: str
    """short, and different from the other runs of the page"""
    recipe: Recipe
    report: Report
    dense_accuracy: float
    dense_seconds: float | None
    seconds: float | None
    """per image, before and after, if it was measured"""
    epochs: tuple[Epoch, ...]
    study: Study | None
    no_study: str
    """why there is none"""

    @property
    def target(self) -> float | None:
        """The budget as a share of the dense FLOPs."""
        try:
            return parse_budget(self.recipe.budget).kept_of(self.report.dense_flops)
        except SanpError:  # a time, which is no share of the FLOPs
            return None


def read_sources(folders: list[Path]) -> list[Source]:
    """The runs in these folders, each under a short name of its own."""
    if not folders:
        raise SanpError("no run was given: give the folder of at least one finished run")
    names = short_names(folders)
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def short_names(folders: list[Path]) -> list[str]:
    """The folders' last parts, as many as tell them apart."""
    paths = [folder.resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        raise SanpError("a run was given twice: give each folder once")
    parts = 1
    while True:
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
        parts += 1


def _read(folder: Path, name: str) -> Source:
    recipe = read_run(folder)
    found = read_report(folder)
    try:
        report = _report(found)
        dense = _share(found["dense"]["accuracy"])
        before, after = (_seconds(part.get("seconds_per_image")) for part in (found["dense"], found))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise SanpError(
            f"{folder / REPORT} is damaged ({type(error).__name__}: {error}): restore it; sanp eval {folder} needs "
            "none of it"
        ) from error
    try:
        studied, why = study(folder), ""
    except SanpError as error:  # most often: the data is not on this machine
        studied, why = None, str(error)
    return Source(
        folder=folder,
        name=name,
        recipe=recipe,
        report=report,
        dense_accuracy=dense,
        dense_seconds=before,
        seconds=after,
        epochs=tuple(_epochs(folder)),
        study=studied,
        no_study=why,
    )


def _report(found: Mapping[str, Any]) -> Report:
    """A Report from its own JSON."""
    layers = tuple(
        LayerReport(
            name=str(layer["name"]),
            kept=_share(layer["kept"]),
            flops=_number(layer["flops"]),
            **{name: int(_number(layer[name])) for name in COUNTS},
        )
        for layer in found["layers"]
    )
    confusion = np.asarray(found["confusion"], dtype=np.int64)
    per_sample = np.asarray(found["per_sample"], dtype=np.float64)
    if not all(layer.channels > 0 and layer.dense_flops > 0 for layer in layers):
        raise ValueError("a layer has no channels or no FLOPs")
    if not layers or confusion.ndim != 2 or per_sample.ndim != 1 or not len(per_sample):
        raise ValueError("layers, confusion or per_sample is empty or of the wrong shape")
    if not ((per_sample >= 0) & (per_sample <= LARGEST)).all():
        raise ValueError("per_sample holds what is not a count")
    return Report(
        accuracy=_share(found["accuracy"]),
        flops=_number(found["flops"]),
        paper_flops=_number(found["paper_flops"]),
        dense_flops=int(_number(found["dense_flops"])),
        overhead_flops=int(_number(found["overhead_flops"])),
        per_sample=per_sample,
        layers=layers,
        confusion=confusion,
    )


def _epochs(folder: Path) -> list[Epoch]:
    """The lines of metrics.jsonl, their steps counted through all stages; none if there is no such file."""
    found: list[Epoch] = []
    before = latest = 0  # steps of the stages that are over, and of the last line
    for number, line in enumerate(read_metrics(folder), 1):
        stage, step = line["stage"], line.get("step")
        if not isinstance(step, int) or not 0 <= step <= LARGEST:
            raise SanpError(f"line {number} of {folder}'s metrics.jsonl has step {step!r}: run it anew")
        if found and (stage != found[-1].stage or step <= latest):
            before = found[-1].step
        latest = step
        found.append(Epoch(stage=stage, step=before + step, **{name: line.get(name) for name in MEASURED}))
    return found


def _seconds(value: object) -> float | None:
    """A time, if one was measured."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else None


def _number(value: Any) -> float:
    number = float(value)
    if not 0 <= number <= LARGEST:
        raise ValueError(f"{value!r} is not a count")
    return number


def _share(value: Any) -> float:
    number = _number(value)
    if number > 1 + 1e-9:  # a mean of ones may be rounded up
        raise ValueError(f"{value!r} is not a share")
    return number
