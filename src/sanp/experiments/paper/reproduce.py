"""Reproduces the rows of the paper's tables: runs those that have no results line yet, and adds their lines."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sanp.core.errors import SanpError, Stopped
from sanp.experiments.compare import Job, carry_out
from sanp.experiments.metrics import Stopwatch, seconds_of
from sanp.experiments.paper.rows import RecipeRow, row_folder, same_work
from sanp.experiments.paper.stale import changed
from sanp.experiments.results import append, read_run_lines, result_line, trials_of
from sanp.experiments.run_folder import MODEL, is_finished
from sanp.experiments.shipped import names, result_of
from sanp.experiments.training_batches import Tell
from sanp.training.stage import Watch

Mode = Literal["missing", "stale", "none"]
"""the rows to run: those without a line, also those whose lines are stale, or none"""


def reproduce(
    rows: Iterable[RecipeRow],
    runs: Path,
    results: Path,
    *,
    run: Mode = "missing",
    tell: Tell = lambda line: None,
    watch: Watch | None = None,
) -> list[str]:
    """Runs all rows that have no results line yet, and appends a line for each one that is finished.

    Run folders are made in ``runs``; interrupted ones are resumed. Results files are in the folder ``results``. Dense
    networks are trained first, where needed. ``run`` says which rows to run: a row whose line was made with other
    settings is told, and run again only in the mode ``stale``. ``tell`` is called with lines to show, ``watch`` after
    every step.

    A row that fails does not stop the others. Returned is what failed, a text for each.
    """
    work = _Work(runs, results, run, tell, watch)
    for row in rows:
        try:
            work.carry_out(row)
        except Stopped:
            raise
        except Exception as error:  # whatever a row dies of, the next one may succeed
            why = str(error) if isinstance(error, SanpError) else f"{type(error).__name__}: {error}"
            work.failed.append(f"{_shown(row)}: {why}")
            tell(f"{_shown(row)}: failed: {why}")
    return work.failed


def _shown(row: RecipeRow) -> str:
    return row.name + (f" (seed {row.recipe.seed})" if row.recipe.seed != row.dense_seed else "")


@dataclass
class _Work:
    """What all rows share; the arguments are those of :func:`reproduce`."""

    runs: Path
    results: Path
    mode: Mode
    tell: Tell
    watch: Watch | None
    failed: list[str] = field(default_factory=list)
    broken: dict[Path, str] = field(default_factory=dict)
    """run folders of dense networks that failed, and why"""
    told: set[str] = field(default_factory=set)

    def carry_out(self, row: RecipeRow) -> None:
        """Runs a row and, where needed, its dense network."""
        file = self.results / f"{row.name.partition('/')[0]}.jsonl"
        if row.dense is None:  # it says itself from which network it starts
            job = Job(row.recipe, row_folder(self.runs, row.name, row.recipe))
            if not self._settled(_shown(row), row.name, job, file):
                self._run(_shown(row), row.name, job, file)
            return
        dense = self.results / "dense.jsonl"
        base = Job(row.dense, row_folder(self.runs, row.dense_name, row.dense))
        shipped = _shipped(row.dense_name, base, dense)
        recipe = replace(row.recipe, pretrained=shipped or str(base.folder / MODEL))
        job = Job(recipe, row_folder(self.runs, row.name, recipe))
        if self.mode != "none" and not shipped and not _lines(row.dense_name, base, dense):
            self._train_dense(row, base, dense)  # even if the row is there: the table shows its dense network too
        if self._settled(_shown(row), row.name, job, file):
            return
        if shipped:
            self._tell_once(f"{row.dense_name}: in {dense.name} already")
        else:
            self._train_dense(row, base, dense)
        self._run(_shown(row), row.name, job, file)

    def _tell_once(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self.tell(line)

    def _settled(self, shown: str, name: str, job: Job, results: Path) -> bool:
        """Whether there is nothing to run, which is told: the line is there, or is stale, or nothing is to be run."""
        reasons = [changed(line["config"], job.recipe) for line in _lines(name, job, results)]
        if [] in reasons:
            self.tell(f"{shown}: in {results.name} already")
            return True
        if reasons and self.mode != "stale":
            again = "" if self.mode == "none" else " (--stale runs it again)"
            self.tell(f"{shown}: stale in {results.name}{again}: {'; '.join(reasons[-1])}")
            return True
        if self.mode == "none":
            self.tell(f"{shown}: not run yet")
        return self.mode == "none"

    def _train_dense(self, row: RecipeRow, base: Job, results: Path) -> None:
        """Trains the dense network of a row, unless it is there; an error if that has failed before."""
        if base.folder in self.broken:
            raise SanpError(f"its dense network failed ({self.broken[base.folder]})")
        try:
            self._run(row.dense_name, row.dense_name, base, results)
        except Exception as error:
            self.broken[base.folder] = str(error)
            raise

    def _run(self, shown: str, name: str, job: Job, results: Path) -> None:
        """Carries out one run, unless it is finished, and appends its results line, unless it is there."""
        if not is_finished(job.folder):
            self.tell(f"{shown}: begun")
            try:
                with Stopwatch(job.folder, self.watch) as stopwatch:
                    carry_out(job, stopwatch)
            except Stopped as error:
                raise Stopped(f"stopped in {shown}: the same command goes on from there") from error
        if any(not changed(line["config"], job.recipe) for line in _lines(name, job, results)):
            return
        line = result_line(name, job.folder, seconds_of(job.folder))
        append(results, {**line, "trials": trials_of(line["method"], self.results)})
        self.tell(f"{shown}: error {line['error']:.2%}, {line['kept']:.2%} of the dense FLOPs")


def _lines(name: str, job: Job, results: Path) -> list[dict[str, Any]]:
    """The results lines of a row with the epochs, images and seed of this run."""
    return [line for line in read_run_lines(results) if line["name"] == name and same_work(line, job.recipe)]


def _shipped(name: str, job: Job, results: Path) -> str | None:
    """The name of the network of this run in the package, if it is there, so that it need not be trained again."""
    if not _lines(name, job, results):
        return None
    lines = ((each, result_of(each)) for each in names())
    same = (
        each
        for each, line in lines
        if line["name"] == name and same_work(line, job.recipe) and not changed(line["config"], job.recipe)
    )
    return next(same, None)
