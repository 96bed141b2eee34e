"""`sanp bench`: the time of a run's network, or of one's own, against its FLOPs, as a table and a figure."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Column, Table

from sanp.cli.console import make_console, plain
from sanp.cli.options import NETWORK_NAMES, BudgetOption, InputOption, PrecisionOption, WeightsOption, with_network
from sanp.core.checks import require
from sanp.core.errors import SanpError
from sanp.core.files import write_text

if TYPE_CHECKING:
    from sanp.engine.bench.bench import Bench

REDRAW_SECONDS = 0.5
"""seconds between two drawings of the progress"""


@with_network
def bench_network(
    target: Annotated[str, typer.Argument(help=f"Folder of a finished run, {NETWORK_NAMES}, or a backbone.")],
    input: InputOption = "1,3,224,224",
    weights: WeightsOption = None,
    batch: Annotated[int, typer.Option(help="Images in each call.")] = 1,
    pruned: Annotated[str, typer.Option(help="Shares of the FLOPs to prune, separated by commas.")] = "0.34,0.5,0.67",
    budget: BudgetOption = None,
    threads: Annotated[int, typer.Option(help="Threads of every runtime.")] = 1,
    precision: PrecisionOption = "fp32",
    seconds: Annotated[float, typer.Option(help="Seconds that each row is measured for.")] = 2.0,
    core: Annotated[int | None, typer.Option(help="Processor core to stay on (default: the last).")] = None,
    device: Annotated[
        str, typer.Option(help="cuda or mps: time torch on that device too; auto or cpu: the processor alone.")
    ] = "auto",
    figure: Annotated[
        Path | None,
        typer.Option(help="File of the figure: .html, .svg, .png or .pdf (default: bench.html, in the run's folder)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurement as JSON.")] = False,
) -> None:
    """Time a network at several costs beside the dense one in torch, ONNX Runtime and OpenVINO."""
    require("report", "plotly", "jinja2")
    from sanp.cli.bench_target import bench_target
    from sanp.cli.target import engine_device
    from sanp.engine.bench.bench import BenchConfig, bench
    from sanp.engine.bench.tables import check_figure
    from sanp.experiments.shipped import run_named

    config = BenchConfig(
        batch=batch,
        pruned=_shares(pruned),
        threads=threads,
        seconds=seconds,
        core=core,
        precision=precision,
        device=engine_device(device).type,
    )
    errors = make_console(stderr=True)
    run, say = run_named(Path(target)), partial(errors.print, soft_wrap=True)
    path = figure or (run if Path(target).is_dir() else Path()) / "bench.html"
    check_figure(path)
    given = bench_target(target, run, shape=input, weights=weights, budget=budget, precision=precision, say=say)
    with timing_bar(errors) as progress:
        found = bench(*given, config, tell=say, progress=progress)
    _write(found, path)
    console = make_console(stderr=as_json)
    if as_json:
        sys.stdout.write(json.dumps(found.as_dict()) + "\n")
    else:
        show(found, console)
    what = "page" if path.suffix == ".html" else "figure"
    console.print(f"{what}: {plain(path)}; measurement: {plain(path.with_suffix('.json'))}", soft_wrap=True)


def _write(found: "Bench", path: Path) -> None:
    """Writes a measurement as a page or a figure, by the name of the file, and as JSON beside it."""
    if path.suffix == ".html":
        from sanp.report.bench_page import write_bench

        write_bench(found, path)
    else:
        from sanp.engine.bench.tables import time_against_flops, write_figure

        write_figure(time_against_flops([found.as_dict()]), path)
    write_text(path.with_suffix(".json"), json.dumps(found.as_dict()))


@contextmanager
def timing_bar(console: Console) -> Iterator[Callable[[float], None]]:
    """Shows how far a timing is, in a terminal; redrawn between calls only, since a thread would disturb them."""
    if not console.is_terminal:
        yield lambda share: None
        return
    with Bar(console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("timing", total=1.0, visible=False)
        last = 0.0

        def show(share: float) -> None:
            nonlocal last
            if time.perf_counter() - last > REDRAW_SECONDS or share == 1:
                last = time.perf_counter()
                bar.update(task, completed=share, visible=True, refresh=True)

        yield show


def _shares(text: str) -> tuple[float, ...]:
    """The numbers of ``--pruned``."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise SanpError(f"--pruned {text!r} cannot be read: give shares with commas, as 0.34,0.5,0.67") from error


def show(found: "Bench", console: Console) -> None:
    """Prints the rows of a measurement, and what could not be timed."""
    threads = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
    title = f"{plain(found.network)}, batch {found.batch}, {threads}, engine in {found.precision}"
    table = Table(Column("", overflow="fold"), "FLOPs", "ms an image", "of best dense", "of own dense", title=title)
    for row in found.rows:
        best = "" if row.of_best_dense is None else f"{row.of_best_dense:.2f}"
        table.add_row(plain(row.what), f"{row.kept:.0%}", f"{row.ms:.3f}", best, f"{row.of_own_dense:.2f}")
    console.print(table)
    if found.torch_note:
        console.print(plain(found.torch_note), soft_wrap=True)
    for name, why in found.missing.items():
        console.print(plain(f"{name} is left out: {why}"))
