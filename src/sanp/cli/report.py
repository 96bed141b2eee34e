"""`sanp report`: the page of one run or several, or its figures as files."""

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sanp.cli.console import make_console, plain
from sanp.cli.options import DeviceOption, with_network
from sanp.core.checks import require
from sanp.core.errors import SanpError
from sanp.core.files import check_replaceable, own_folder


@with_network
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs, or names of pretrained networks.")],
    out: Annotated[
        Path | None, typer.Option(help="File of the page, or folder of the figures (default: in the run's folder).")
    ] = None,
    time: Annotated[bool, typer.Option(help="Measure the time per image first, where it is not known yet.")] = True,
    device: DeviceOption = "auto",
    format: Annotated[str, typer.Option(help="html for the page; png, svg or pdf for its figures.")] = "html",
) -> None:
    """Make a page that shows what a network learned to skip: one HTML file that works offline."""
    from sanp.core.devices import chosen_device

    require("report", "plotly", "jinja2")
    computes_on = chosen_device(device)
    runs = [_writable(run) for run in runs]
    place = runs[0] if len(runs) == 1 else Path()
    console = make_console()

    def say(line: str) -> None:
        console.print(plain(line), soft_wrap=True)

    if time:
        _measure_times(runs, console)
    if format == "html":
        from sanp.report.page import write_page

        page = write_page(runs, out or place / "report.html", computes_on, say)
        console.print(f"report: {plain(page)}", soft_wrap=True)
        return
    from sanp.report.figure_files import write_figures

    folder = out or own_folder(place, "figures")
    drawn = write_figures(runs, folder, format, computes_on, say)
    console.print(f"{len(drawn)} figures and captions.md: {plain(folder)}", soft_wrap=True)


def _measure_times(runs: list[Path], console: Console) -> None:
    """Times the networks of runs whose time is not known, with the engine in one thread, and says so."""
    from sanp.experiments.run_folder import DENSE, read_report
    from sanp.experiments.timing import time_runs

    for run in runs:
        if read_report(run).get("seconds_per_image") is not None or not (run / DENSE).is_file():
            continue
        console.print(f"timing {plain(run)} with the engine, in one thread ...", soft_wrap=True)
        try:
            time_runs([run])
        except SanpError as error:
            console.print(plain(f"not timed: {error}"), soft_wrap=True)


def _writable(run: Path) -> Path:
    """A run folder that a report may write to; that of a pretrained network is copied to runs/ first."""
    from sanp.experiments.shipped import run_named

    folder = run_named(run)
    if folder == run:
        return run
    place = own_folder(Path("runs"), folder.name)
    for file in folder.iterdir():
        check_replaceable(place / file.name)
    return Path(shutil.copytree(folder, place, dirs_exist_ok=True))
