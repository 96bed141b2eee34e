"""The figures as files for a paper: PNG, SVG or PDF, drawn by a Chromium on this machine, and a file of captions."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sanp.core.checks import require
from sanp.core.devices import CPU
from sanp.core.errors import SanpError
from sanp.core.files import check_replaceable, write_text
from sanp.report.charts.chart import Chart
from sanp.report.charts.style import LIGHT
from sanp.report.charts.trade_off import trade_off_of_runs
from sanp.report.run_data import read_runs
from sanp.report.run_section import RunSection, run_section

FIGURE_FORMATS = ("png", "svg", "pdf")
FIGURE_WIDTH = 700
"""pixels; PNG files have twice as many"""


def write_figures(
    folders: list[Path],
    out: Path,
    format: str,
    device: torch.device = CPU,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Writes every figure of the runs in ``folders`` to the folder ``out``, with ``captions.md`` beside them.

    ``format`` is one of ``FIGURE_FORMATS``. The networks run on ``device``. ``tell`` gets a line about each run that
    lacks figures.
    """
    if format not in FIGURE_FORMATS:
        raise SanpError(
            f"format {format!r} is not known: choose one of {', '.join(FIGURE_FORMATS)}, or html for the page"
        )
    require("figures", "kaleido")  # before the study of the images, which takes a while
    runs = read_runs(folders, device, tell)
    charts = {} if len(runs) == 1 else {"trade": trade_off_of_runs(runs)}
    for run in runs:
        start = "" if len(runs) == 1 else _file_name(run.name) + "-"
        charts |= {start + name: chart for name, chart in _named(run_section(run)).items()}
    try:
        out.mkdir(parents=True, exist_ok=True)
        captions = (f"- `{name}.{format}`: **{chart.title}.** {chart.text}" for name, chart in charts.items())
        write_text(out / "captions.md", "\n".join(captions) + "\n")
    except OSError as error:
        raise SanpError(f"cannot write to {out} ({error.strerror}): choose another --out") from error
    return draw({out / f"{name}.{format}": chart for name, chart in charts.items()}, format)


def _named(section: RunSection) -> dict[str, Chart]:
    """A run's charts by file name; those of a layer carry its name."""
    named = {chart.key: chart for chart in section.charts}
    for option, charts in section.channels.options.items() if section.channels is not None else ():
        named |= {f"{chart.key}-{_file_name(option)}": chart for chart in charts}
    return named


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)


def draw(charts: dict[Path, Chart], format: str) -> list[Path]:
    """Writes each chart to the file that it is given under, all of one format."""
    require("figures", "kaleido")
    import kaleido
    from choreographer.errors import ChromeNotFoundError

    for path in charts:
        check_replaceable(path)
    scale = 2 if format == "png" else 1
    jobs = [
        {
            "fig": _on_paper(chart),
            "path": str(path),
            "opts": {"format": format, "width": FIGURE_WIDTH, "height": chart.figure.layout.height, "scale": scale},
        }
        for path, chart in charts.items()
    ]
    try:
        # MathJax would come from the network, and no label needs it.
        kaleido.write_fig_from_object_sync(jobs, kopts={"mathjax": False}, cancel_on_error=True)
    except ChromeNotFoundError as error:
        raise SanpError(
            "drawing figures to files needs Chrome or Chromium, and none was found: install one, or make the page"
        ) from error
    return list(charts)


def _on_paper(chart: Chart) -> Any:
    """The figure on white, with text and grid in the colours of a light page."""
    figure, (text, line) = chart.figure, LIGHT
    figure.update_layout(paper_bgcolor="white", font_color=text)
    figure.update_xaxes(gridcolor=line, linecolor=line)
    figure.update_yaxes(gridcolor=line, linecolor=line)
    return figure
