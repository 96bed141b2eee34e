"""The page: everything about one run or several in a single HTML file that asks nothing of any network."""

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

from sanp.core.errors import SanpError
from sanp.core.files import write_text
from sanp.core.plain_text import escaped, plain_lines
from sanp.report.charts.chart import Chart
from sanp.report.charts.runs_table import runs_table
from sanp.report.charts.trade_off import trade_off_of_runs
from sanp.report.page_parts import read_part
from sanp.report.run_data import RunData, read_runs
from sanp.report.run_section import RunSection, run_section

LARGEST_PAGE = 5_900_000
"""bytes of a page: what any mail server lets through"""


def write_page(folders: list[Path], out: Path) -> Path:
    """Writes the page of the runs in these folders to the file ``out``."""
    html = render(read_runs(folders))
    if out.is_dir():
        raise SanpError(f"{out} is a folder: give --out the name of an HTML file")
    write_text(out, html)
    return out


def render(runs: list[RunData]) -> str:
    """The page as text; runs whose details would make it too large are in the comparison only."""
    environment = _environment()
    overview = trade_off_of_runs(runs) if len(runs) > 1 else None
    frame: dict[str, Any] = {
        "runs": runs,
        "overview": overview,
        "overview_table": runs_table(runs),
        "overview_data": _packed({f"overview-{overview.key}": _plain(overview)} if overview else {}),
        "plotly": _plotly(),
        "style": Markup(read_part("page.css")),
        "script": Markup(read_part("page.js")),
    }
    page, of_a_run = environment.get_template("page.html"), environment.get_template("run.html")
    size = len(page.render(**frame, sections=[], left_out=runs).encode("utf-8"))
    shown, left_out = [], []
    for index, run in enumerate(runs):
        section = run_section(run)
        text = of_a_run.render(section=section, prefix=f"run{index}", data=_section_data(section, index))
        if size + len(text.encode("utf-8")) > LARGEST_PAGE:
            left_out.append(run)
        else:
            size += len(text.encode("utf-8"))
            shown.append(Markup(text))
    return page.render(**frame, sections=shown, left_out=left_out)


def _section_data(section: RunSection, index: int) -> str:
    """The section's figures for the script, by the names that the template gives them."""
    figures = {f"run{index}-{chart.key}": _plain(chart) for chart in section.charts}
    if section.channels is not None:
        for option, charts in section.channels.options.items():
            for chart in charts:
                figures[f"run{index}-{chart.key}|{option}"] = _plain(chart)
    return _packed(figures)


def _plain(chart: Chart) -> dict[str, Any]:
    """A chart as JSON."""
    figure = json.loads(chart.figure.to_json())
    figure["layout"].pop("template", None)
    return {"title": chart.title, "text": chart.text, "data": figure["data"], "layout": figure["layout"]}


def _packed(figures: dict[str, Any]) -> str:
    return _compressed(plain_json(json.dumps(figures, ensure_ascii=False, separators=(",", ":"))).encode("utf-8"))


def plain_json(text: str) -> str:
    """JSON in whose strings what is not printable, such as marks that turn text around, is written by its code."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\\" + escaped(each) for each in text)


def _printed(value: Any) -> Any:
    """Text from outside as a template prints it."""
    return plain_lines(value) if type(value) is str else value


@cache
def _plotly() -> str:
    return _compressed(plotly.offline.get_plotlyjs().encode("utf-8"))


def _compressed(content: bytes) -> str:
    """Text that the script unpacks: a third of the size, and nothing in it can end a script element."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


def _environment() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(read_part)
    return jinja2.Environment(
        loader=loader,
        autoescape=True,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
