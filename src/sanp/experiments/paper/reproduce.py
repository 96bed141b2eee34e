"""Reproduces the rows of the paper's tables: runs a recipe for each, adds a results line, and makes tables of these."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sanp.core.errors import SanpError, Stopped, unknown_name
from sanp.experiments.compare import Job, carry_out, dense_recipe
from sanp.experiments.documents import fill
from sanp.experiments.metrics import Stopwatch, seconds_of
from sanp.experiments.paper.tables import TABLES, readme_table, results_page
from sanp.experiments.recipe import Recipe, make_recipe, read_recipe
from sanp.experiments.results import append, read, result_line
from sanp.experiments.run import Watch
from sanp.experiments.run_folder import MODEL, is_finished
from sanp.experiments.shipped import names, result_of

PAGES = {"tables": results_page, "cifar10": readme_table}
"""marker in a document to the function that makes the text between its two lines"""


@dataclass(frozen=True)
class Row:
    """One row of a table: its name, and the recipe to run."""

    name: str
    """table and file name of its recipe, such as ``table1/vgg19-ns``"""
    recipe: Recipe

    @property
    def dense_name(self) -> str:
        """The name in the results of the dense network that the row starts from."""
        return f"{self.recipe.data}-{self.recipe.backbone}-dense"


@dataclass(frozen=True)
class Scope:
    """How much of a row to run: all of it, or less for a quick test."""

    epochs: float = 1.0
    """factor on all numbers of epochs"""
    images: int | None = None
    """number of training images; None: all"""

    def of(self, recipe: Recipe) -> Recipe:
        """The recipe with the epochs and images of this scope."""
        if not 0 < self.epochs < math.inf:
            raise SanpError(f"epochs-scale {self.epochs}: give a factor above 0")
        if self.images is not None and self.images < 1:
            raise SanpError(f"limit {self.images}: give at least one image, or leave it out for all")
        fit = recipe.fit
        scaled = {
            name: max(1, round(self.epochs * getattr(fit, name)))
            for name in ("pretrain_epochs", "warmup_epochs", "joint_epochs")
        }
        return replace(recipe, limit=self.images or recipe.limit, fit=replace(fit, **scaled))


def select(
    recipes: Path,
    tables: Iterable[str],
    *,
    backbone: str | None = None,
    rows: Iterable[str] = (),
    scope: Scope | None = None,
) -> list[Row]:
    """The rows of the given tables, whose recipes are in the folder ``recipes``.

    ``backbone`` selects the rows of one backbone, ``rows`` those with these file names. ``scope`` shortens them.
    """
    wanted, known = set(rows), {path.stem for table in TABLES for path in (recipes / table).glob("*.toml")}
    found: list[Row] = []
    for name in sorted(wanted - known):
        raise unknown_name("row", name, known)
    for table in tables:
        if table not in TABLES:
            raise unknown_name("table", table, TABLES)
        for path in sorted((recipes / table).glob("*.toml")):
            recipe = (scope or Scope()).of(make_recipe(read_recipe(path), str(path)))
            if backbone in (None, recipe.backbone) and (not wanted or path.stem in wanted):
                found.append(Row(f"{table}/{path.stem}", recipe))
    if not found:
        raise SanpError(f"no such row in {recipes}: look at the files there, or leave --backbone or --rows out")
    return found


def reproduce(
    rows: Iterable[Row],
    runs: Path,
    results: Path,
    *,
    tell: Callable[[str], None] = lambda line: None,
    watch: Watch | None = None,
) -> None:
    """Runs all rows that have no results line yet, and appends a line for each one that is finished.

    Run folders are made in ``runs``; interrupted ones are resumed. Results files are in the folder ``results``. Dense
    networks are trained first, where needed. ``tell`` is called with lines to show, ``watch`` after every step.
    """
    for row in rows:
        file = results / f"{row.name.partition('/')[0]}.jsonl"
        dense = dense_recipe(row.recipe)
        base = Job(dense, row_folder(runs, row.dense_name, dense))
        shipped = _shipped(row.dense_name, base, results / "dense.jsonl")
        recipe = replace(row.recipe, pretrained=shipped or str(base.folder / MODEL))
        job = Job(recipe, row_folder(runs, row.name, recipe))
        wanted = not shipped and not _known(row.name, job, file)
        _run(row.dense_name, base, results / "dense.jsonl", tell, watch, wanted=wanted)
        _run(row.name, job, file, tell, watch)


def _run(
    name: str, job: Job, results: Path, tell: Callable[[str], None], watch: Watch | None, *, wanted: bool = False
) -> None:
    """Carries out one run and appends its results line, unless the line exists.

    ``wanted``: the network itself is needed, so that it is trained even if the line exists.
    """
    known = _known(name, job, results)
    if known and (not wanted or is_finished(job.folder)):
        tell(f"{name}: in {results.name} already")
        return
    if not is_finished(job.folder):
        tell(f"{name}: begun")
        try:
            with Stopwatch(job.folder, watch) as stopwatch:
                carry_out(job, stopwatch)
        except Stopped as error:
            raise Stopped(f"stopped in {name}: the same command goes on from there") from error
    if known:
        return
    line = result_line(name, job.folder, seconds_of(job.folder))
    append(results, line)
    tell(f"{name}: error {line['error']:.2%}, {line['kept']:.2%} of the dense FLOPs")


def _shipped(name: str, job: Job, results: Path) -> str | None:
    """The name of the network of this run in the package, if it is there, so that it need not be trained again."""
    if not _known(name, job, results):
        return None
    lines = ((each, result_of(each)) for each in names())
    return next((each for each, line in lines if line["name"] == name and same_work(line, job.recipe)), None)


def _known(name: str, job: Job, results: Path) -> bool:
    return any(line["name"] == name and same_work(line, job.recipe) for line in read(results))


def same_work(line: dict[str, Any], recipe: Recipe) -> bool:
    """Whether a results line is of a run with the epochs, images and seed of ``recipe``."""
    fit = recipe.fit
    epochs = [fit.pretrain_epochs, fit.warmup_epochs, fit.joint_epochs]
    return bool(line["epochs"] == epochs and line["images"] == recipe.limit and line["seed"] == recipe.seed)


def row_folder(runs: Path, name: str, recipe: Recipe) -> Path:
    """The run folder of a row in ``runs``; its name tells short runs from whole ones."""
    fit = recipe.fit
    short = f"-{recipe.limit}" if recipe.limit else ""
    return runs / f"{name.replace('/', '-')}-{fit.pretrain_epochs}.{fit.warmup_epochs}.{fit.joint_epochs}{short}"


def check_pages(pages: Iterable[Path]) -> None:
    """Raises an error if a page does not exist or has no place for a table; called before training."""
    for page in pages:
        if not _markers(page):
            wanted = " or ".join(f"<!-- {marker} --> and <!-- end of {marker} -->" for marker in PAGES)
            raise SanpError(f"{page} has no place for a table: give --page a document with the lines {wanted}")


def write_pages(results: Path, pages: Iterable[Path]) -> None:
    """Fills the tables of each page from the results files in ``results``, at the markers that it has."""
    for page in pages:
        for marker in _markers(page):
            fill(page, marker, PAGES[marker](results))


def _markers(page: Path) -> list[str]:
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SanpError(f"cannot read the page {page} ({error}): give --page a Markdown file") from error
    return [marker for marker in PAGES if f"<!-- {marker} -->" in text]
