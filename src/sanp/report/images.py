"""The figures as files for a paper: PNG, SVG or PDF, drawn by a Chromium on this machine, and a file of captions."""

import re
from pathlib import Path
from typing import Any

from sanp.core.checks import require
from sanp.core.errors import SanpError
from sanp.report.charts.chart import Chart
from sanp.report.charts.trade import trade
from sanp.report.page import RunPart, run_part
from sanp.report.run_data import read_sources

FORMATS = ("png", "svg", "pdf")
WIDTH = 700
"""pixels; PNG files have twice as many"""


def write_figures(folders: list[Path], out: Path, format: str) -> list[Path]:
    """Writes every figure of these runs to a folder, with ``captions.md`` beside them."""
    if format not in FORMATS:
        raise SanpError(f"format {format!r} is not known: choose one of {', '.join(FORMATS)}, or html for the page")
    require("figures", "kaleido")  # before the study of the images, which takes a while
    sources = read_sources(folders)
    charts = {} if len(sources) == 1 else {"trade": trade(sources)}
    for source in sources:
        start = "" if len(sources) == 1 else _file_name(source.name) + "-"
        charts |= {start + name: chart for name, chart in _named(run_part(source)).items()}
    try:
        out.mkdir(parents=True, exist_ok=True)
        captions = (f"- `{name}.{format}`: **{chart.title}.** {chart.text}" for name, chart in charts.items())
        (out / "captions.md").write_text("\n".join(captions) + "\n", encoding="utf-8")
    except OSError as error:
        raise SanpError(f"cannot write to {out} ({error.strerror}): choose another --out") from error
    return draw({out / f"{name}.{format}": chart for name, chart in charts.items()}, format)


def _named(part: RunPart) -> dict[str, Chart]:
    """A run's charts by file name; those of a layer carry its name."""
    named = {chart.key: chart for chart in part.charts}
    for option, charts in part.channels.options.items() if part.channels is not None else ():
        named |= {f"{chart.key}-{_file_name(option)}": chart for chart in charts}
    return named


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)


def draw(charts: dict[Path, Chart], format: str) -> list[Path]:
    """Writes charts to files."""
    require("figures", "kaleido")
    import kaleido
    from choreographer.errors import ChromeNotFoundError

    scale = 2 if format == "png" else 1
    jobs = [
        {
            "fig": _on_paper(chart),
            "path": str(path),
            "opts": {"format": format, "width": WIDTH, "height": chart.figure.layout.height, "scale": scale},
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
    """The figure on white, with the grid that the page would give it."""
    figure = chart.figure
    figure.update_layout(paper_bgcolor="white", font_color="#1b1f27")
    figure.update_xaxes(gridcolor="#d5d9e0", linecolor="#d5d9e0")
    figure.update_yaxes(gridcolor="#d5d9e0", linecolor="#d5d9e0")
    return figure
