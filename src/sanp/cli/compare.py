"""`sanp compare`: several methods from one dense network, or finished runs, as the paper's table."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Column, Table

from sanp.cli.console import make_console, plain, plain_lines
from sanp.core.errors import SanpError

if TYPE_CHECKING:
    import torch


def compare_methods(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of finished runs.")] = None,
    recipe: Annotated[Path | None, typer.Option(help="Comparison to train: a recipe with methods = [...].")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the comparison (with --recipe).")] = Path("runs/compare"),
    seeds: Annotated[int, typer.Option(help="Seeds of each row: mean and deviation are shown (with --recipe).")] = 1,
    paired: Annotated[
        bool,
        typer.Option("--paired", help="Compare the first run with each other one image by image (McNemar's test)."),
    ] = False,
    results: Annotated[Path | None, typer.Option(help="Add what --paired found to this file, a line a pair.")] = None,
    workers: Annotated[int, typer.Option(help="Runs at the same time, on Ray if it is installed (with --recipe).")] = 1,
    time: Annotated[
        bool,
        typer.Option(
            "--time", help="Measure the seconds per image of networks that the engine can run, in one thread."
        ),
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda or mps (default: what the recipe says; auto with --paired).")
    ] = None,
    table: Annotated[Path | None, typer.Option(help="Write the table to this .md, .csv or .tex file.")] = None,
) -> None:
    """Compare methods in one table: train a comparison, or read finished runs."""
    from sanp.core.devices import chosen_device
    from sanp.experiments.compare import compare, read_plan
    from sanp.experiments.table import TABLE_FORMATS, cells, read_rows, write_table
    from sanp.experiments.timing import time_runs

    if (recipe is None) == (not runs):
        raise SanpError("give run folders, or a comparison with --recipe: one of the two")
    place = chosen_device(device or "auto")
    if paired:
        _paired(runs or [], results, place)
        return
    console = make_console(stderr=True)
    if recipe is not None:
        plan = read_plan(recipe, out, seeds=seeds, device=device)
        rows = compare(plan, out, workers=workers, timed=time, tell=lambda line: console.print(plain(line)))
    else:
        if time:
            time_runs(runs or [])
        rows = read_rows(runs or [])
    if sys.stdout.isatty():
        make_console().print(shown_table(cells(rows)))
    else:
        sys.stdout.write(plain_lines(TABLE_FORMATS["markdown"](rows)))
    if table is not None:
        write_table(rows, table)


def shown_table(lines: list[list[str]]) -> Table:
    """The cells of a comparison, the heading first, as a table that a terminal of 80 columns has room for."""
    heading, *rows = lines
    table = Table(*(Column(name, overflow="fold") for name in heading), box=box.SIMPLE, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def _paired(runs: list[Path], results: Path | None, device: "torch.device") -> None:
    """Prints the first run against each other one, and adds a line for each pair to the file ``results``."""
    from sanp.experiments.paired import compare_paired, paired_table
    from sanp.experiments.results import append, commit

    pairs = compare_paired(runs, device)
    sys.stdout.write(plain_lines(paired_table(runs, pairs)))
    for other, pair in zip(runs[1:], pairs, strict=True):
        if results is not None:
            append(results, {"runs": [runs[0].name, other.name], **pair.as_dict(), "commit": commit()})
