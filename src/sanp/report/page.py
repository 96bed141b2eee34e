"""The page: everything about one run or several in a single HTML file that asks nothing of any network."""

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

from sanp.core.errors import SanpError
from sanp.core.files import write_atomically
from sanp.report.charts.channels import channel_choice
from sanp.report.charts.chart import Chart, Choice
from sanp.report.charts.gallery import Picture, gallery
from sanp.report.charts.headline import Answer, answer
from sanp.report.charts.layers import layer_charts
from sanp.report.charts.samples import sample_charts
from sanp.report.charts.trade import runs_table, trade
from sanp.report.charts.training import training
from sanp.report.run_data import Source, read_sources

LARGEST = 5_900_000
"""bytes of a page: what any mail server lets through"""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunPart:
    """One run's part of the page."""

    source: Source
    answer: Answer
    training: Chart | None
    layers: list[Chart]
    samples: list[Chart]
    cheapest: list[Picture]
    dearest: list[Picture]
    channels: Choice | None

    @property
    def charts(self) -> list[Chart]:
        """All charts that are always shown."""
        return [*([self.training] if self.training else []), *self.layers, *self.samples]


def run_part(source: Source) -> RunPart:
    """Makes a run's charts."""
    cheapest, dearest = gallery(source.study) if source.study is not None else ([], [])
    return RunPart(
        source=source,
        answer=answer(source),
        training=training(source),
        layers=layer_charts(source),
        samples=sample_charts(source),
        cheapest=cheapest,
        dearest=dearest,
        channels=channel_choice(source),
    )


def write_report(folders: list[Path], out: Path) -> Path:
    """Writes the page of these runs."""
    html = render(read_sources(folders))

    if out.is_dir():
        raise SanpError(f"{out} is a folder: give --out the name of an HTML file")
    write_atomically(out, lambda path: Path(path).write_text(html, encoding="utf-8"))
    return out


def render(sources: list[Source]) -> str:
    """The page as text; runs whose details would make it too large are in the comparison only."""
    environment = _environment()
    overview = trade(sources) if len(sources) > 1 else None
    frame: dict[str, Any] = {
        "sources": sources,
        "overview": overview,
        "overview_table": runs_table(sources),
        "overview_data": _packed({f"overview-{overview.key}": _plain(overview)} if overview else {}),
        "plotly": _plotly(),
        "style": Markup(_part("page.css")),
        "script": Markup(_part("page.js")),
    }
    page = environment.get_template("page.html")
    size = len(page.render(**frame, runs=[], left_out=sources).encode("utf-8"))
    shown, left_out = [], []
    for index, source in enumerate(sources):
        part = run_part(source)
        text = environment.get_template("run.html").render(part=part, prefix=f"run{index}", data=_run_data(part, index))
        if size + len(text.encode("utf-8")) > LARGEST:
            left_out.append(source)
        else:
            size += len(text.encode("utf-8"))
            shown.append(Markup(text))
    return page.render(**frame, runs=shown, left_out=left_out)


def _run_data(part: RunPart, index: int) -> str:
    """The run's figures for the script, by the names that the template gives them."""
    figures = {f"run{index}-{chart.key}": _plain(chart) for chart in part.charts}
    if part.channels is not None:
        for option, charts in part.channels.options.items():
            for chart in charts:
                figures[f"run{index}-{chart.key}|{option}"] = _plain(chart)
    return _packed(figures)


def _plain(chart: Chart) -> dict[str, Any]:
    """A chart as JSON."""
    figure = json.loads(chart.figure.to_json())
    figure["layout"].pop("template", None)
    return {"title": chart.title, "text": chart.text, "data": figure["data"], "layout": figure["layout"]}


def _packed(figures: dict[str, Any]) -> str:
    return _compressed(json.dumps(figures, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))


@cache
def _plotly() -> str:
    return _compressed(plotly.offline.get_plotlyjs().encode("utf-8"))


def _compressed(content: bytes) -> str:
    """Text that the script unpacks: a third of the size, and nothing in it can end a script element."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


def _part(name: str) -> str:
    return (files("sanp.report") / "parts" / name).read_text(encoding="utf-8")


def _environment() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(_part)
    return jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
