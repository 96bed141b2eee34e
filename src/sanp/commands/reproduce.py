"""`sanp reproduce`: the paper's tables and figures, from recipes to a page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sanp.errors import unknown_name
from sanp.paper_tables import TABLES
from sanp.reproduce import Scope, check_pages, select, write_pages
from sanp.reproduce import reproduce as run_rows

PAGES = [Path("docs/results.md"), Path("README.md")]


def reproduce(
    what: Annotated[str, typer.Argument(help="table1, table2, table3, methods or all.")],
    backbone: Annotated[str | None, typer.Option(help="Rows of this backbone only.")] = None,
    rows: Annotated[list[str] | None, typer.Option(help="Rows of these names only (files in recipes/).")] = None,
    epochs_scale: Annotated[float, typer.Option(help="Factor of all epochs.")] = 1.0,
    limit: Annotated[int | None, typer.Option(help="Train on so many images only; the row is marked short.")] = None,
    recipes: Annotated[Path, typer.Option(help="Folder of the recipes.")] = Path("recipes"),
    runs: Annotated[Path, typer.Option(help="Folder of the runs; finished ones are not run again.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of the results lines.")] = Path("results"),
    page: Annotated[
        list[Path] | None, typer.Option(help="Pages to fill (default: docs/results.md and README.md).")
    ] = None,
) -> None:
    """Make the paper's tables again: run what is missing, add a line for each row, fill the pages."""
    if what not in (*TABLES, "all"):
        raise unknown_name("table", what, [*TABLES, "all"])
    pages = page or PAGES
    check_pages(pages)
    console = Console()
    chosen = select(
        recipes,
        TABLES if what == "all" else [what],
        backbone=backbone,
        rows=rows or (),
        scope=Scope(epochs_scale, limit),
    )
    run_rows(chosen, runs, results, tell=lambda line: console.print(line, soft_wrap=True))
    write_pages(results, pages)
    console.print(f"tables: {', '.join(map(str, pages))}", soft_wrap=True)
