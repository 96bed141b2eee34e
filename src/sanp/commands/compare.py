"""`sanp compare`: several methods from one dense network, or finished runs, as the paper's table."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sanp.compare import compare as carry_out
from sanp.compare import read_plan
from sanp.errors import SanpError
from sanp.table import FORMATS, read_rows, write_table


def compare(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of finished runs.")] = None,
    recipe: Annotated[Path | None, typer.Option(help="Comparison to train: a recipe with methods = [...].")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the comparison (with --recipe).")] = Path("runs/compare"),
    workers: Annotated[int, typer.Option(help="Runs at a time (with --recipe).")] = 1,
    table: Annotated[Path | None, typer.Option(help="Write the table to this .md, .csv or .tex file.")] = None,
) -> None:
    """Compare methods in one table: train a comparison, or read finished runs."""
    if (recipe is None) == (not runs):
        raise SanpError("give run folders, or a comparison with --recipe: one of the two")
    console = Console(stderr=True)
    if recipe is not None:
        rows = carry_out(read_plan(recipe, out), out, workers=workers, tell=lambda line: console.print(line))
    else:
        rows = read_rows(runs or [])
    sys.stdout.write(FORMATS["markdown"](rows))
    if table is not None:
        write_table(rows, table)
