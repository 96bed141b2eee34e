"""A comparison: several methods start from one dense network and train for the same number of epochs, in one folder.

A comparison recipe is a recipe with ``methods = [...]``, or with a ``[[row]]`` table of settings for each row, or both.
The folder can be resumed. It holds:

dense-.../     the dense network of each backbone and data set, trained once
ROW/           a run folder for each row; finished runs are not trained again
table.md, table.csv, table.tex
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sanp.core.errors import SanpError
from sanp.experiments.pool import side_by_side
from sanp.experiments.recipe import Recipe, make_recipe, merge, other_methods, read_recipe
from sanp.experiments.run import train
from sanp.experiments.run_folder import CONFIG, MODEL, folder_name, is_finished, read_run
from sanp.experiments.seeds import check_seeds
from sanp.experiments.table import Row, read_rows, write_table
from sanp.experiments.timing import time_runs
from sanp.experiments.training_batches import Tell
from sanp.training.stage import Watch


@dataclass(frozen=True)
class Job:
    """A run: a recipe, and the folder to run it in."""

    recipe: Recipe
    folder: Path

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return is_finished(self.folder)


@dataclass(frozen=True)
class ComparisonPlan:
    """The runs of a comparison."""

    dense: tuple[Job, ...]
    """the runs that train the dense networks"""
    rows: tuple[Job, ...]
    """the runs of the rows, which start from the dense networks"""


def read_plan(path: Path, folder: Path, *, seeds: int = 1, device: str | None = None) -> ComparisonPlan:
    """The plan of the comparison recipe in the file ``path``; the other arguments are those of :func:`make_plan`."""
    return make_plan(read_recipe(path), folder, str(path), seeds=seeds, device=device)


def make_plan(
    settings: dict[str, Any],
    folder: Path,
    where: str = "the comparison",
    *,
    seeds: int = 1,
    device: str | None = None,
) -> ComparisonPlan:
    """The plan of a comparison recipe given as plain values; its runs will be in ``folder``.

    Every row is run with ``seeds`` seeds, from that of its recipe on, from the same dense network.
    ``device`` is where all of them run; None leaves it to the recipe.

    ``where`` names the recipe in error messages.
    """
    check_seeds(seeds)
    common = {name: value for name, value in settings.items() if name not in ("methods", "row")}
    methods, rows = settings.get("methods", []), settings.get("row", [])
    if not isinstance(methods, list) or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SanpError(f'{where}: write methods = ["fbs", "sanp"], or [[row]] and its settings for each row')
    wanted = [*({"method": method} for method in methods), *rows]
    if not wanted:
        raise SanpError(f'{where} names no row: write methods = ["fbs", "sanp"], or [[row]] for each')
    place = {} if device is None else {"device": device}
    recipes = [make_recipe({**_row_settings(common, row), **place}, where) for row in wanted]
    dense: dict[Recipe, Path] = {}
    for recipe in recipes:
        if recipe.pretrained is None:
            key = dense_recipe(recipe)
            dense.setdefault(key, folder / _unused(f"dense-{_name(recipe, 'dense')}", dense.values()))
    _check_epochs(recipes, where)
    jobs: list[Job] = []
    for recipe in recipes:
        start = recipe.pretrained or str(dense[dense_recipe(recipe)] / MODEL)
        for seed in range(recipe.seed, recipe.seed + seeds):
            each = replace(recipe, seed=seed, pretrained=start)
            name = _unused(_name(each, f"{each.method}-{each.budget.strip('%')}"), [job.folder for job in jobs])
            jobs.append(Job(each, folder / name))
    return ComparisonPlan(tuple(Job(recipe, place) for recipe, place in dense.items()), tuple(jobs))


def _row_settings(common: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The common settings and the row's own, which win; sections of other methods than the row's are left out."""
    others = other_methods({**common, **row}.get("method", Recipe.method))
    return merge({name: value for name, value in common.items() if name not in others}, row)


def dense_recipe(recipe: Recipe) -> Recipe:
    """The recipe that trains the dense network of a row: the row's settings without those of pruning."""
    plain = Recipe()
    fit = replace(plain.fit, **{name: getattr(recipe.fit, name) for name in PRETRAINING})
    return replace(
        recipe,
        method="dense",
        budget="100%",
        spm=plain.spm,
        objective=plain.objective,
        controller=plain.controller,
        fit=replace(fit, warmup_epochs=0, joint_epochs=0),
        method_config=None,
    )


PRETRAINING = (
    "pretrain_epochs pretrain_lr normless pretrain_size momentum nesterov weight_decay schedule rise "
    "step_epochs label_smoothing dropout precision"
).split()


def _check_epochs(recipes: list[Recipe], where: str) -> None:
    """Raises an error if rows that start from the same dense network train for different numbers of epochs."""
    seen: dict[Any, tuple[str, int]] = {}
    for recipe in recipes:
        key = recipe.pretrained or dense_recipe(recipe)
        epochs = recipe.fit.warmup_epochs + recipe.fit.joint_epochs
        method, others = seen.setdefault(key, (recipe.method, epochs))
        if epochs != others:
            raise SanpError(
                f"{where}: {method} trains for {others} epochs and {recipe.method} for {epochs} from the same dense "
                "network: give both the same warmup_epochs + joint_epochs"
            )


def _name(recipe: Recipe, method: str) -> str:
    parts = [recipe.backbone, recipe.data, *([] if method == "dense" else [method])]
    return folder_name("-".join(parts)) + (f"-seed{recipe.seed}" if recipe.seed else "")


def _unused(name: str, taken: Any) -> str:
    names, free, number = {folder.name for folder in taken}, name, 1
    while free in names:
        number += 1
        free = f"{name}-{number}"
    return free


def compare(
    plan: ComparisonPlan,
    folder: Path,
    *,
    workers: int = 1,
    timed: bool = False,
    tell: Tell = lambda line: None,
    watch: Watch | None = None,
) -> list[Row]:
    """Carries out the runs of a plan that are not finished, writes the tables into ``folder`` and returns their rows.

    ``workers`` runs train at the same time; if one fails, the others go on and an error is raised at the end. ``timed``
    also measures seconds per image with the engine, after all runs have ended. ``tell`` is called with lines to show.
    ``watch`` is called after every step, but only with one worker.
    """
    if workers < 1:
        raise SanpError(f"workers {workers}: give at least 1")
    for jobs in (plan.dense, plan.rows):
        _carry_out(jobs, workers, tell, watch)
    folders = [job.folder for job in plan.rows]
    if timed:
        time_runs(folders)
    rows = read_rows(folders)
    for name in ("table.md", "table.csv", "table.tex"):
        write_table(rows, folder / name)
    return rows


def _carry_out(jobs: tuple[Job, ...], workers: int, tell: Tell, watch: Watch | None) -> None:
    left = []
    for job in jobs:
        if job.finished:
            _check_same(job)
            tell(f"{job.folder.name}: finished before")
        else:
            left.append(job)
    if workers == 1 or len(left) < 2:
        for job in left:
            tell(f"{job.folder.name}: begun")
            carry_out(job, watch)
            tell(f"{job.folder.name}: finished")
        return
    failed: list[str] = []
    threads = max(1, (os.cpu_count() or 1) // workers)
    for job, error in side_by_side(carry_out, [_with_threads(job, threads) for job in left], workers):
        tell(f"{job.folder.name}: finished" if error is None else f"{job.folder.name}: {error}")
        if error is not None:
            failed.append(f"{job.folder.name} ({error})")
    if failed:
        raise SanpError(f"{len(failed)} of {len(left)} runs did not end: {'; '.join(failed)}; compare again to go on")


def _with_threads(job: Job, threads: int) -> Job:
    """The job with this number of threads, unless its recipe sets one: parallel runs share the processor."""
    return replace(job, recipe=replace(job.recipe, threads=job.recipe.threads or threads))


def carry_out(job: Job, watch: Watch | None = None) -> None:
    """Trains one run, or resumes it; ``watch`` is called after every step."""
    resume = (job.folder / CONFIG).is_file()
    if resume:
        _check_same(job)
    train(job.recipe, job.folder, watch=watch, resume=resume)


def _without_machine(recipe: Recipe) -> Recipe:
    """The recipe without what may differ from machine to machine."""
    return replace(recipe, threads=None, device="auto")


def _check_same(job: Job) -> None:
    """Raises an error if the folder holds a run with other settings."""
    before = read_run(job.folder)
    if _without_machine(before) != _without_machine(job.recipe):
        raise SanpError(
            f"{job.folder} holds a run with other settings than the comparison's: remove it, or choose another folder"
        )
