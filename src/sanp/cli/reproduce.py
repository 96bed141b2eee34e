"""`sanp reproduce`: the paper's tables and figures, from recipes to a page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sanp.cli.console import make_console, plain
from sanp.core.checks import require
from sanp.core.errors import SanpError, unknown_name
from sanp.experiments.documents import fill, read_document
from sanp.experiments.paper.contents import DRAWN, FIGURES, TABLES

if TYPE_CHECKING:
    from sanp.experiments.paper.reproduce import Mode
    from sanp.experiments.paper.rows import RecipeRow

DEFAULT_PAGES = [Path("docs/results.md"), Path("README.md")]


def reproduce_paper(
    what: Annotated[str, typer.Argument(help=f"{', '.join((*TABLES, *DRAWN))}, or all.")],
    backbone: Annotated[str | None, typer.Option(help="Rows of this backbone only.")] = None,
    rows: Annotated[list[str] | None, typer.Option(help="Rows of these names only (files in recipes/).")] = None,
    epochs_scale: Annotated[float, typer.Option(help="Factor that all epochs are multiplied by.")] = 1.0,
    limit: Annotated[int | None, typer.Option(help="Train on this many images only; the row is marked short.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each row; tables show mean and deviation.")] = 1,
    stale: Annotated[
        bool, typer.Option("--stale", help="Run rows again whose lines were made with other settings.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing: show which rows are there, stale or missing; fill the pages.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps (default: what the recipes say).")] = None,
    recipes: Annotated[Path, typer.Option(help="Folder of the recipes.")] = Path("recipes"),
    runs: Annotated[Path, typer.Option(help="Folder of the runs; finished ones are not run again.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of the results lines.")] = Path("results"),
    page: Annotated[
        list[Path] | None, typer.Option(help="Pages to fill (default: docs/results.md and README.md).")
    ] = None,
    figures: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("docs/figures"),
) -> None:
    """Make the paper's tables and figures again.

    A table runs the rows that have no results line yet; a row that fails does
    not stop the others. A figure is drawn from finished runs, and says what to
    run where there are none. Both add lines to results/ and fill the pages.
    """
    from sanp.experiments.paper.figures import figure_rows, make_lines
    from sanp.experiments.paper.rows import Scope, select

    if stale and show:
        raise SanpError("--stale runs rows and --show runs none: give one of the two")
    pages = page or DEFAULT_PAGES
    _check_asked(what, recipes, pages)
    tables = [table for table in TABLES if what in (table, "all")]
    drawn = [figure for figure in DRAWN if what in (figure, "all")]
    if drawn:
        require("figures", "plotly", "kaleido")
    scope = Scope(epochs_scale, limit, device)
    failed: list[str] = []
    if tables:
        chosen = select(
            recipes, tables, backbone=backbone, rows=rows or (), scope=scope, seeds=seeds, unreadable=failed
        )
        asked = len(chosen) + len(failed)
        for line in failed:
            _tell(f"{line} (failed; the other rows go on)")
        mode: Mode = "stale" if stale else "none" if show else "missing"
        failed += _run_rows(chosen, runs, results, mode, recipes, pages)
    lines = 0
    for figure in (each for each in drawn if each in FIGURES):
        of = figure_rows(recipes, figure, backbone=backbone, rows=rows or (), scope=scope)
        lines += make_lines(figure, of, runs, results, scope=scope, tell=_tell)
    if what in FIGURES and not lines:
        raise SanpError(f"{what} has no finished run to be made from: the lines above say what runs one")
    if drawn:
        _draw(drawn, results, figures, pages)
    if failed:
        raise SanpError(f"{len(failed)} of {asked} rows failed: {'; '.join(failed)}")


def _run_rows(
    chosen: "list[RecipeRow]", runs: Path, results: Path, mode: "Mode", recipes: Path, pages: list[Path]
) -> list[str]:
    """Runs rows of tables and fills the pages, also when it is stopped; gives what failed."""
    from sanp.experiments.paper.pages import write_pages
    from sanp.experiments.paper.reproduce import reproduce

    try:
        failed = reproduce(chosen, runs, results, run=mode, tell=_tell)
    finally:
        write_pages(results, recipes, pages)
    _tell(f"tables: {', '.join(map(str, pages))}")
    return failed


def _check_asked(what: str, recipes: Path, pages: list[Path]) -> None:
    """Raises an error if there is no such table or figure, or no folder of recipes, or a page that cannot be filled."""
    from sanp.experiments.paper.pages import check_pages

    known = (*TABLES, *DRAWN, "all")
    if what not in known:
        raise unknown_name("table or figure", what, known)
    if not recipes.is_dir():
        raise SanpError(
            f"{recipes} is not here: the recipes, results and pages of the paper's tables are in the source "
            "repository, not in the installed package; run this in a checkout of it, or give --recipes"
        )
    check_pages(pages)


def _tell(line: str) -> None:
    """Prints a line of progress."""
    make_console().print(plain(line), soft_wrap=True)


def _draw(drawn: list[str], results: Path, folder: Path, pages: list[Path]) -> None:
    """Draws the figures that there are results lines for, and shows them in the pages that have a place for figures."""
    from sanp.report.charts.paper_figures import captioned, paper_charts
    from sanp.report.figure_files import draw

    charts = paper_charts(results, drawn)
    folder.mkdir(parents=True, exist_ok=True)
    if charts:
        draw({folder / f"{name}.svg": chart for name, chart in charts.items()}, "svg")
    for name in charts:
        _tell(f"figure: {folder / name}.svg")
    for page in pages:
        if "<!-- figures -->" in read_document(page):
            place = os.path.relpath(folder, page.parent)
            fill(page, "figures", captioned(paper_charts(results, DRAWN), Path(place).as_posix()))
