"""What every page is put together with: templates, the style, the script, and charts packed into the file."""

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

from sanp.core.plain_text import escaped, plain_lines
from sanp.report.charts.chart import Chart
from sanp.report.page_parts import read_part


def template(name: str) -> jinja2.Template:
    """A template of ``parts/``."""
    return _environment().get_template(name)


def frame() -> dict[str, Any]:
    """What ``parts/frame.html`` needs on every page."""
    style, script = Markup(read_part("page.css")), Markup(read_part("page.js"))
    return {"plotly": _plotly(), "style": style, "script": script}


def packed_charts(charts: Mapping[str, Chart]) -> str:
    """Charts for the script, by the names that the template gives their figures."""
    plain = {name: _plain(chart) for name, chart in charts.items()}
    return _compressed(plain_json(json.dumps(plain, ensure_ascii=False, separators=(",", ":"))).encode("utf-8"))


def plain_json(text: str) -> str:
    """JSON in whose strings what is not printable, such as marks that turn text around, is written by its code."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\\" + escaped(each) for each in text)


def _printed(value: Any) -> Any:
    """Text from outside as a template prints it."""
    return plain_lines(value) if type(value) is str else value


def _plain(chart: Chart) -> dict[str, Any]:
    """A chart as JSON."""
    figure = json.loads(chart.figure.to_json())
    figure["layout"].pop("template", None)
    return {"title": chart.title, "text": chart.text, "data": figure["data"], "layout": figure["layout"]}


@cache
def _plotly() -> str:
    return _compressed(plotly.offline.get_plotlyjs().encode("utf-8"))


def _compressed(content: bytes) -> str:
    """Text that the script unpacks: a third of the size, and nothing in it can end a script element."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


@cache
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
