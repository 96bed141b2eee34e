"""The explorer's curves of a network with a dial: accuracy against cost and against time over the range."""

import numpy as np
import plotly.graph_objects as go

from sanp.core.colours import BLUE, GREY
from sanp.report.charts.style import blank
from sanp.report.dial_curve import DialCurve

LOW_MARGIN = {"l": 52, "r": 12, "t": 12, "b": 44}


def over_range(curve: DialCurve | None, kept: float) -> tuple[go.Figure, go.Figure]:
    """Accuracy against cost, and against time, with a line where the slider stands, at the cost ``kept``.

    Empty figures without a curve, or without times.
    """
    if curve is None:
        return blank(40, LOW_MARGIN), blank(40, LOW_MARGIN)
    shares = [point.kept for point in curve.points]
    accuracies = [point.accuracy for point in curve.points]
    cost = _curve(shares, accuracies, kept)
    cost.update_xaxes(title_text="mean cost, of dense", tickformat=".0%")
    times = [point.milliseconds for point in curve.points if point.milliseconds is not None]
    if len(times) < len(shares):
        return cost, blank(40, LOW_MARGIN)
    taken = _curve(times, accuracies, float(np.interp(kept, shares, times)))
    taken.update_xaxes(title_text="milliseconds an image")
    return cost, taken


def _curve(x: list[float], accuracies: list[float], now: float) -> go.Figure:
    figure = blank(200, LOW_MARGIN, showlegend=False)
    marker = {"color": GREY, "size": 6}
    figure.add_trace(go.Scatter(x=x, y=accuracies, mode="lines+markers", line={"color": GREY}, marker=marker))
    figure.add_vline(x=now, line={"color": BLUE, "width": 2})
    figure.update_yaxes(title_text="accuracy", tickformat=".1%")
    return figure
