"""The explorer: a page on this machine alone, where one picks or drops an image and moves the budget (with Dash)."""

import base64
import binascii
import logging
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import dash
import numpy as np
from dash import ALL, Input, Output, State, dcc, html
from flask import abort, request
from werkzeug.serving import BaseWSGIServer, make_server

from sanp.core.errors import SanpError
from sanp.gating.flops import human
from sanp.report.charts.gallery import png_address
from sanp.report.explorer.charts import coloured, fired, over_budgets, probabilities
from sanp.report.explorer.explorer import MEASURED_ON, Explorer, Pixels, breaking_point

OFFERED = 24
"""test images to pick from at a time"""
LARGEST_UPLOAD = 16 * 2**20
HOST = "127.0.0.1"


def serve(folder: Path, port: int) -> tuple[BaseWSGIServer, str]:
    """A server for a run, and its address; ``serve_forever`` starts it. Port 0 takes a free one."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for every request tells a reader nothing
    app = make_app(Explorer(folder))
    try:
        server = make_server(HOST, port, app.server, threaded=True)
    except (OSError, SystemExit) as error:  # werkzeug exits where a port is taken
        raise SanpError(f"port {port} cannot be used ({error}): give another --port") from error
    names = {f"{name}:{server.port}" for name in (HOST, "localhost")}

    def only_here() -> None:
        # A stranger's web page could reach this server under a name of its own that leads here.
        if request.host not in names:
            abort(403)

    app.server.before_request(only_here)
    return server, f"http://{HOST}:{server.port}/"


def make_app(explorer: Explorer) -> dash.Dash:
    """The page and what happens on it."""
    app = dash.Dash(__name__, title=f"explore {explorer.folder.name}", update_title="", assets_folder="none")
    app.server.config["MAX_CONTENT_LENGTH"] = 2 * LARGEST_UPLOAD
    app.index_string = _index()
    app.layout = _layout(explorer)
    _connect(app, explorer)
    return app


def _index() -> str:
    parts = files("sanp.report") / "parts"
    style = "".join((parts / name).read_text(encoding="utf-8") for name in ("page.css", "explore.css"))
    script = (parts / "explore.js").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head>{%metas%}<meta name="viewport" content="width=device-width, '
        'initial-scale=1"><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        "<title>{%title%}</title>{%css%}<style>" + style + "</style><script>" + script + "</script></head>"
        "<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"
    )


def _layout(explorer: Explorer) -> html.Main:
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
    return [
        html.H2("Pick a test image"),
        html.Div(id="offer", className="offer"),
        html.Button("Other images", id="others"),
        html.H2("Or bring your own"),
        dcc.Upload(
            html.Button("Drop an image here, or choose a file"),
            id="upload",
            accept="image/png,image/jpeg,image/webp",
            max_size=LARGEST_UPLOAD,
            className="drop",
        ),
        html.P(id="trouble", className="note", role="alert"),
    ]


def _showing(explorer: Explorer) -> list[Any]:
    settings, trained = explorer.settings, explorer.trained
    marks = {place: f"{setting.share:.0%}" for place, setting in enumerate(settings)}
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
        html.H2(id="breaks"),
        dcc.Graph(id="over", config=chart),
        html.H2("Channels that fired"),
        dcc.Graph(id="fired", config=chart),
        html.P(id="fired-text", className="note"),
    ]


def _connect(app: dash.Dash, explorer: Explorer) -> None:
    """What follows from what."""
    app.clientside_callback(
        "function (_) { return window.matchMedia('(prefers-color-scheme: dark)').matches; }",
        Output("dark", "data"),
        Input("dark", "id"),
    )
    app.callback(Output("offer", "children"), Input("others", "n_clicks"))(_offer(explorer))
    app.callback(
        Output("image", "data"),
        Output("trouble", "children"),
        Input({"type": "pick", "position": ALL}, "n_clicks"),
        Input("upload", "contents"),
        State("image", "data"),
        prevent_initial_call=True,
    )(_choose(explorer))
    outputs = [
        Output("picture", "src"),
        Output("picture", "alt"),
        Output("said", "children"),
        Output("probabilities", "figure"),
        Output("budget-text", "children"),
        Output("breaks", "children"),
        Output("over", "figure"),
        Output("fired", "figure"),
        Output("fired-text", "children"),
    ]
    app.callback(*outputs, Input("image", "data"), Input("budget", "value"), Input("dark", "data"))(_show(explorer))


def _offer(explorer: Explorer) -> Callable[..., Any]:
    def offer(clicks: int | None) -> list[Any]:
        """Thumbnails; every press of the button goes on to the next ones of a fixed shuffle."""
        order = np.random.default_rng(0).permutation(len(explorer.test))
        start = (clicks or 0) * OFFERED % len(order)
        chosen = [int(position) for position in order[start : start + OFFERED]]
        return [
            html.Button(
                html.Img(src=png_address(explorer.image(position)), alt=f"test image {position}"),
                id={"type": "pick", "position": position},
                title=explorer.inputs.classes[int(explorer.test.labels[position])],
            )
            for position in chosen
        ]

    return offer


def _choose(explorer: Explorer) -> Callable[..., Any]:
    def choose(clicks: list[int | None], contents: str | None, image: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The picked test image, or the dropped file as pixels."""
        cause = dash.ctx.triggered_id
        if isinstance(cause, dict) and any(clicks):
            return {"position": int(cause["position"])}, ""
        if cause != "upload" or not contents:
            return image, ""
        try:
            pixels = explorer.decode(base64.b64decode(contents.partition(",")[2], validate=True))
        except (SanpError, binascii.Error) as error:
            return image, str(error)
        return {"pixels": base64.b64encode(pixels.tobytes()).decode("ascii")}, ""

    return choose


def _show(explorer: Explorer) -> Callable[..., Any]:
    classes = explorer.inputs.classes

    def show(image: dict[str, Any], place: int, dark: bool) -> tuple[Any, ...]:
        """All that depends on the image and the budget."""
        pixels, label = _pixels(explorer, image)
        place = min(max(int(place), 0), len(explorer.settings) - 1)
        answered, seen = explorer.answer(pixels, place)
        answers = explorer.answers(pixels)
        right = answers[explorer.trained].label if label is None else label
        truth = "your own image" if label is None else f"test image {image['position']}, class {classes[label]}"
        share = sum(float(mask[0].mean()) for mask in seen.open.values()) / max(1, len(seen.open))
        return (
            png_address(pixels),
            truth,
            _said(explorer, answered.probabilities, answered.share, truth, label),
            coloured(probabilities(answered, classes, label), dark),
            _set_to(explorer, place),
            _breaks(answers, right, explorer.trained, classes),
            coloured(over_budgets(answers, place, right, classes), dark),
            coloured(fired(seen), dark),
            f"In a layer {share:.0%} of the channels are computed for this image, in the mean over the layers.",
        )

    return show


def _pixels(explorer: Explorer, image: dict[str, Any]) -> tuple[Pixels, int | None]:
    """The pixels of what was chosen, and their class if it is known."""
    if "position" in image:
        return explorer.image(int(image["position"])), int(explorer.test.labels[int(image["position"])])
    size = explorer.inputs.image_size
    flat = np.frombuffer(base64.b64decode(image["pixels"]), dtype=np.uint8)
    return flat.reshape(-1, size, size), None


def _said(explorer: Explorer, chances: Any, share: float, truth: str, label: int | None) -> list[Any]:
    best = int(chances.argmax())
    verdict = "" if label is None else (" Right." if best == label else " Wrong.")
    return [
        html.P(truth, className="note"),
        html.P([html.B(explorer.inputs.classes[best]), f", {chances[best]:.1%} sure.{verdict}"], className="lead"),
        html.P([html.B(f"{share:.1%}", id="cost"), f" of the dense cost: {human(share * explorer.dense_flops)}"]),
    ]


def _set_to(explorer: Explorer, place: int) -> str:
    if len(explorer.settings) == 1:
        return "This network's cost cannot be moved: its decisions do not follow a threshold."
    now, trained = explorer.settings[place].share, explorer.settings[explorer.trained].share
    return f"Set to {now:.0%} of the dense cost, trained at {trained:.0%}: means over {MEASURED_ON} test images."


def _breaks(answers: list[Any], right: int, start: int, classes: tuple[str, ...]) -> str:
    broken = breaking_point(answers, right, start)
    if not any(answered.label == right for answered in answers):
        return f"No budget gives the answer “{classes[right]}”"
    if broken is None:
        return f"“{classes[right]}” holds down to the smallest budget"
    return f"“{classes[right]}” breaks at a budget of {broken.setting.share:.0%}"
