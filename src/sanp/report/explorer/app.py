"""The explorer's app (with Dash): one picks or drops an image and moves the budget, and the page follows."""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import dash
import numpy as np
from dash import ALL, Input, Output, State, html
from flask import Response
from werkzeug.exceptions import HTTPException

from sanp.core.errors import SanpError
from sanp.core.limits import LONGEST_ERROR
from sanp.core.plain_text import plain
from sanp.gating.flops import human
from sanp.report.charts.gallery import png_address
from sanp.report.dial_curve import DialCurve
from sanp.report.explorer.answers import Answer, breaking_point
from sanp.report.explorer.charts import coloured, fired, over_budgets, probabilities
from sanp.report.explorer.explorer import MEASURED_ON, Explorer, Pixels
from sanp.report.explorer.layout import LARGEST_UPLOAD, index, layout
from sanp.report.explorer.range_charts import over_range

OFFERED = 24
"""test images to pick from at a time"""


def make_explorer_app(explorer: Explorer) -> dash.Dash:
    """The page of an explorer, and what happens on it."""
    app = dash.Dash(__name__, title=f"explore {explorer.folder.name}", update_title="", assets_folder="none")
    app.server.config["MAX_CONTENT_LENGTH"] = 2 * LARGEST_UPLOAD  # an image comes as base64 text
    app.index_string = index()
    app.layout = layout(explorer)
    _connect(app, explorer)
    app.server.register_error_handler(Exception, refused)
    return app


def refused(error: Exception) -> Any:
    """The answer to a request that is none: one line, and no traceback where the server runs."""
    if isinstance(error, HTTPException):
        return error
    line = plain(f"this request cannot be answered ({type(error).__name__}: {error})")[:LONGEST_ERROR]
    return Response(line, 400, mimetype="text/plain")


def _connect(app: dash.Dash, explorer: Explorer) -> None:
    """Says which element of the page changes when which other one does."""
    app.clientside_callback(
        "function (_) { return window.matchMedia('(prefers-color-scheme: dark)').matches; }",
        Output("dark", "data"),
        Input("dark", "id"),
    )
    app.callback(Output("offer", "children"), Input("others", "n_clicks"))(offer_images(explorer))
    app.callback(
        Output("image", "data"),
        Output("trouble", "children"),
        Input({"type": "pick", "position": ALL}, "n_clicks"),
        Input("upload", "contents"),
        State("image", "data"),
        prevent_initial_call=True,
    )(choose_image(explorer))
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
        Output("range-cost", "figure"),
        Output("range-time", "figure"),
    ]
    inputs = [Input("image", "data"), Input("budget", "value"), Input("dark", "data")]
    app.callback(*outputs, *inputs)(show_answer(explorer))


def offer_images(explorer: Explorer) -> Callable[..., Any]:
    """What fills the place of the test images to pick from."""

    def offer(clicks: int | None) -> list[Any]:
        """Small images; every press of the button goes on to the next ones of a fixed shuffle."""
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


def choose_image(explorer: Explorer) -> Callable[..., Any]:
    """What a click on a test image or a dropped file does."""

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


def show_answer(explorer: Explorer) -> Callable[..., Any]:
    """What a change of the image, the budget or the theme does."""
    classes = explorer.inputs.classes

    def show(image: dict[str, Any], place: int, dark: bool) -> tuple[Any, ...]:
        """All that depends on the image and the budget, in the order of the outputs in ``_connect``."""
        pixels, label = pixels_of(explorer, image)
        place = min(max(int(place), 0), len(explorer.settings) - 1)
        answer, seen = explorer.answer(pixels, place)
        answers = explorer.answers(pixels)
        right = answers[explorer.trained].label if label is None else label
        truth = "your own image" if label is None else f"test image {image['position']}, class {classes[label]}"
        share = sum(float(mask[0].mean()) for mask in seen.open.values()) / max(1, len(seen.open))
        return (
            png_address(pixels),
            truth,
            _said(explorer, answer, truth, label, explorer.seconds(pixels, place)),
            coloured(probabilities(answer, classes, label), dark),
            _set_to(explorer, place),
            _breaks(answers, right, explorer.trained, classes),
            coloured(over_budgets(answers, place, right, classes), dark),
            coloured(fired(seen), dark),
            f"In a layer {share:.0%} of the channels are computed for this image, in the mean over the layers.",
            *(coloured(figure, dark) for figure in over_range(explorer.curve, explorer.settings[place].kept)),
        )

    return show


def pixels_of(explorer: Explorer, image: dict[str, Any]) -> tuple[Pixels, int | None]:
    """The pixels of what was chosen, and their class if it is known."""
    if "position" in image:
        return explorer.image(int(image["position"])), int(explorer.test.labels[int(image["position"])])
    size, channels = explorer.inputs.image_size, len(explorer.inputs.mean)
    flat = np.frombuffer(base64.b64decode(image["pixels"]), dtype=np.uint8)
    return flat.reshape(channels, size, size), None


def _said(explorer: Explorer, answer: Answer, truth: str, label: int | None, seconds: float) -> list[Any]:
    """The answer in words.

    ``truth`` says what the image is, ``label`` is its class if that is known, ``seconds`` is the time that it took.
    """
    verdict = "" if label is None else (" Right." if answer.label == label else " Wrong.")
    name, sure = explorer.inputs.classes[answer.label], answer.probabilities[answer.label]
    flops = human(answer.kept * explorer.dense_flops)
    return [
        html.P(truth, className="note"),
        html.P([html.B(name), f", {sure:.1%} sure.{verdict}"], className="lead"),
        html.P([html.B(f"{answer.kept:.1%}", id="cost"), f" of the dense cost: {flops} FLOPs, {1e3 * seconds:.3g} ms"]),
    ]


def _set_to(explorer: Explorer, place: int) -> str:
    """What the slider is set to, in words."""
    if len(explorer.settings) == 1:
        return "This network's cost cannot be moved: its decisions do not follow a threshold."
    now, trained = explorer.settings[place].kept, explorer.settings[explorer.trained].kept
    if explorer.curve is not None:
        return f"Set to {now:.0%} of the dense cost{_measured(explorer.curve, now)}"
    return f"Set to {now:.0%} of the dense cost, trained at {trained:.0%}: means over {MEASURED_ON} test images."


def _measured(curve: DialCurve, kept: float) -> str:
    """What the curve says of a cost, in words."""
    shares = [point.kept for point in curve.points]
    accuracy = float(np.interp(kept, shares, [point.accuracy for point in curve.points]))
    times = [point.milliseconds for point in curve.points if point.milliseconds is not None]
    taken = f", {float(np.interp(kept, shares, times)):.2f} ms an image" if len(times) == len(shares) else ""
    return f": {accuracy:.1%} of {curve.images:,} test images are right{taken}."


def _breaks(answers: list[Answer], right: int, start: int, classes: tuple[str, ...]) -> str:
    """Where the answer breaks, in words; the arguments are those of ``breaking_point``."""
    broken = breaking_point(answers, right, start)
    if not any(answer.label == right for answer in answers):
        return f"No budget gives the answer “{classes[right]}”"
    if broken is None:
        return f"“{classes[right]}” holds down to the smallest budget"
    return f"“{classes[right]}” breaks at a budget of {broken.setting.kept:.0%}"
