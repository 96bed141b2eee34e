"""The elements of the explorer's page; what fills and moves them is in ``app.py``."""

from typing import Any

from dash import dcc, html

from sanp.report.explorer.explorer import Explorer
from sanp.report.page_parts import read_part

LARGEST_UPLOAD = 16 * 2**20
"""bytes of an image that somebody drops on the page"""


def index() -> str:
    """The HTML around the page, with dash's own marks in braces."""
    style = read_part("page.css") + read_part("explore.css")
    script = read_part("explore.js")
    return (
        '<!doctype html><html lang="en"><head>{%metas%}<meta name="viewport" content="width=device-width, '
        'initial-scale=1"><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        "<title>{%title%}</title>{%css%}<style>" + style + "</style><script>" + script + "</script></head>"
        "<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"
    )


def layout(explorer: Explorer) -> html.Main:
    """All elements: the images to pick from, and what is shown of the picked one."""
    return html.Main(
        [
            dcc.Store(id="image", data={"position": 0}),
            dcc.Store(id="dark", data=False),
            dcc.Store(id="offered", data=0),
            html.H1("What does this image need?"),
            html.Div([html.Section(_picking()), html.Section(_showing(explorer))], className="columns"),
        ]
    )


def _picking() -> list[Any]:
    """Where an image is picked or dropped."""
    limit: dict[str, Any] = {"data-largest": str(LARGEST_UPLOAD)}
    return [
        html.H2("Pick a test image"),
        html.Div(id="offer", className="offer"),
        html.Button("Other images", id="others"),
        html.H2("Or bring your own"),
        dcc.Upload(
            html.Button("Drop an image here, or choose a file"),
            id="upload",
            max_size=LARGEST_UPLOAD,  # larger files are dropped without a word, so explore.js speaks
            className="drop",
        ),
        html.P(id="trouble", className="note", role="alert"),
        html.P(id="too-large", className="note", role="alert", **limit),
    ]


def _showing(explorer: Explorer) -> list[Any]:
    """The answer, the slider of the budget and the charts; every third stop of the slider is labelled."""
    settings, trained = explorer.settings, explorer.trained
    marks = {place: f"{setting.kept:.0%}" for place, setting in enumerate(settings)}
    shown = {place: marks[place] if place % 3 == trained % 3 else "" for place in marks}
    fixed = len(settings) == 1
    live: Any = {"aria-live": "polite"}
    named: Any = {"aria-label": "mean cost, of the dense network's"}
    chart: Any = {"displayModeBar": False}
    return [
        html.Div([html.Img(id="picture", alt=""), html.Div(id="said", **live)], className="answer"),
        dcc.Graph(id="probabilities", config=chart),
        html.H2("Budget"),
        html.Div(
            dcc.Slider(
                id="budget",
                min=0,
                max=max(1, len(settings) - 1),
                step=1,
                value=trained,
                marks=shown,
                included=False,
                disabled=fixed,
                allow_direct_input=False,
            ),
            role="group",
            **named,
        ),
        html.P(id="budget-text", className="note"),
        html.Div(
            [dcc.Graph(id="range-cost", config=chart), dcc.Graph(id="range-time", config=chart)],
            id="range",
            hidden=explorer.curve is None,
        ),
        html.H2(id="breaks"),
        dcc.Graph(id="over", config=chart),
        html.H2("Channels that fired"),
        dcc.Graph(id="fired", config=chart),
        html.P(id="fired-text", className="note"),
    ]
