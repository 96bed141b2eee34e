"""Everything that a page tells of a run, read from its folder and checked."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from sanp.core.devices import CPU
from sanp.core.errors import SanpError
from sanp.evaluation import Report
from sanp.experiments.recipe import Recipe
from sanp.experiments.run_folder import REPORT, read_report, read_run
from sanp.gating.amount import parse_budget
from sanp.gating.budget_range import parse_range
from sanp.report.dial_curve import DialCurve, curve_of
from sanp.report.epochs import EpochLine, read_epochs
from sanp.report.saved_report import parse_report, share
from sanp.report.study import Study
from sanp.report.study_file import study_of


@dataclass(frozen=True, kw_only=True, eq=False)
class RunData:
    """A finished run, as a page needs it."""

    folder: Path
    name: str
    """short, and different from the other runs of the page"""
    recipe: Recipe
    report: Report
    """of the pruned network"""
    dense_accuracy: float
    dense_seconds: float | None
    seconds: float | None
    """per image, before and after pruning, if it was measured"""
    epochs: tuple[EpochLine, ...]
    study: Study | None
    no_study: str
    """why there is none"""
    curve: DialCurve | None = None
    """of a network that was trained for a range of budgets"""

    @property
    def target(self) -> float | None:
        """The budget, or the smallest one of a range, as a share of the dense FLOPs; None for one that is a time."""
        try:
            wanted = parse_range(self.recipe.budget)
            smallest = parse_budget(self.recipe.budget) if wanted is None else wanted.low
            return smallest.kept_of(self.report.dense_flops)
        except SanpError:  # of a time, which needs a latency table
            return None


def read_runs(
    folders: list[Path], device: torch.device = CPU, tell: Callable[[str], None] = lambda line: None
) -> list[RunData]:
    """The runs in these folders, each under a short name of its own; their networks run on ``device``.

    ``tell`` gets a line about each run whose images and channels cannot be shown.
    """
    if not folders:
        raise SanpError("no run was given: give the folder of at least one finished run")
    names = short_names(folders)
    runs = [_read(folder, name, device) for folder, name in zip(folders, names, strict=True)]
    for run in runs:
        if run.no_study:
            tell(f"{run.folder}: images and channels by class are not shown: {run.no_study}")
    return runs


def short_names(folders: list[Path]) -> list[str]:
    """The last parts of the folders' paths, as many as tell the folders apart."""
    paths = [folder.resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        raise SanpError("a run was given twice: give each folder once")
    parts = 1
    while True:
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
        parts += 1


def _read(folder: Path, name: str, device: torch.device) -> RunData:
    recipe = read_run(folder)
    found = read_report(folder)
    try:
        report = parse_report(found)
        dense = share(found["dense"]["accuracy"])
        before, after = (_seconds(part.get("seconds_per_image")) for part in (found["dense"], found))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise SanpError(
            f"{folder / REPORT} is damaged ({type(error).__name__}: {error}): restore it; sanp eval {folder} needs "
            "none of it"
        ) from error
    studied, curve, why = None, None, ""
    try:
        studied = study_of(folder, device)
        curve = curve_of(folder)
    except SanpError as error:  # most often: the data is not on this machine
        why = str(error)
    return RunData(
        folder=folder,
        name=name,
        recipe=recipe,
        report=report,
        dense_accuracy=dense,
        dense_seconds=before,
        seconds=after,
        epochs=read_epochs(folder),
        study=studied,
        no_study=why if studied is None else "",
        curve=curve,
    )


def _seconds(value: object) -> float | None:
    """A time, if one was measured."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else None
