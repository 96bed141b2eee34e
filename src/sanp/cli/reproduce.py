"""`sanp reproduce`: the paper's tables and figures, from recipes to a page."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sanp.cli.console import make_console, plain
from sanp.core.checks import require
from sanp.core.errors import SanpError, unknown_name
from sanp.experiments.documents import fill
from sanp.experiments.paper.figures import FIGURES, figure_rows, make_lines
from sanp.experiments.paper.reproduce import Scope, check_pages, select, write_pages
from sanp.experiments.paper.reproduce import reproduce as run_rows
from sanp.experiments.paper.tables import TABLES

PAGES = [Path("docs/results.md"), Path("README.md")]
DRAWN = (*FIGURES, "trade")


def reproduce(
    what: Annotated[str, typer.Argument(help=f"{', '.join((*TABLES, *DRAWN))}, or all.")],
    backbone: Annotated[str | None, typer.Option(help="Rows of this backbone only.")] = None,
    rows: Annotated[list[str] | None, typer.Option(help="Rows of these names only (files in recipes/).")] = None,
    epochs_scale: Annotated[float, typer.Option(help="Factor that all epochs are multiplied by.")] = 1.0,
    limit: Annotated[int | None, typer.Option(help="Train on this many images only; the row is marked short.")] = None,
    recipes: Annotated[Path, typer.Option(help="Folder of the recipes.")] = Path("recipes"),
    runs: Annotated[Path, typer.Option(help="Folder of the runs; finished ones are not run again.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of the results lines.")] = Path("results"),
    page: Annotated[
        list[Path] | None, typer.Option(help="Pages to fill (default: docs/results.md and README.md).")
    ] = None,
    figures: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("docs/figures"),
) -> None:
    """Make the paper's tables and figures again.

    A table runs the rows that have no results line yet. A figure is drawn from finished runs, and says what to run
    where there are none. Both add lines to results/ and fill the pages.
    """
    known = (*TABLES, *DRAWN, "all")
    if what not in known:
        raise unknown_name("table or figure", what, known)
    pages = page or PAGES
    check_pages(pages)
    tables = [table for table in TABLES if what in (table, "all")]
    drawn = [figure for figure in DRAWN if what in (figure, "all")]
    if drawn:
        require("figures", "plotly", "kaleido")
    scope, there = Scope(epochs_scale, limit), 0
    if tables:
        chosen = select(recipes, tables, backbone=backbone, rows=rows or (), scope=scope)
        run_rows(chosen, runs, results, tell=_tell)
        write_pages(results, pages)
        _tell(f"tables: {', '.join(map(str, pages))}")
    for figure in (each for each in drawn if each in FIGURES):
        of = figure_rows(recipes, figure, backbone=backbone, rows=rows or (), scope=scope)
        there += make_lines(figure, of, runs, results, scope=scope, tell=_tell)
    if what in FIGURES and not there:
        raise SanpError(f"{what} has no finished run to be made from: the lines above say what runs one")
    if drawn:
        _draw(drawn, results, figures, pages)


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
        if "<!-- figures -->" in page.read_text(encoding="utf-8"):
            place = os.path.relpath(folder, page.parent)
            fill(page, "figures", captioned(paper_charts(results, DRAWN), Path(place).as_posix()))
