"""Error against cost and against time of one network under its dial."""

import plotly.graph_objects as go

from sanp.core.colours import BLUE, GREY, ORANGE
from sanp.report.charts.chart import Chart
from sanp.report.charts.style import blank
from sanp.report.charts.table import Cell, Table, percent
from sanp.report.dial_curve import CurvePoint, DialCurve
from sanp.report.run_data import RunData


def dial_charts(run: RunData) -> list[Chart]:
    """The charts of a network that was trained for a range of budgets; none for others."""
    if run.curve is None:
        return []
    found = [_against_cost(run, run.curve)]
    if all(point.milliseconds is not None for point in run.curve.points):
        found.append(_against_time(run.curve))
    return found


def _against_cost(run: RunData, curve: DialCurve) -> Chart:
    points = curve.points
    figure = _curve([point.kept for point in points], points)
    figure.add_trace(
        go.Scatter(
            x=[min(point.kept for point in points), max(point.kept for point in points)],
            y=[1 - run.dense_accuracy] * 2,
            name="before pruning, all test images",
            mode="lines",
            line={"color": GREY, "dash": "dot"},
            hoverinfo="skip",
        )
    )
    figure.update_xaxes(title_text="multiply-adds, of dense", tickformat=".0%")
    low, high = points[0], points[-1]
    return Chart(
        key="dial-cost",
        title=f"One network from {low.kept:.0%} to {high.kept:.0%} of the cost: error {_ends(points)}",
        text=f"Error and mean cost at {len(points)} budgets on {curve.images:,} test images: {_said(points)}.",
        figure=figure,
        table=_table(points),
    )


def _against_time(curve: DialCurve) -> Chart:
    points = curve.points
    times = [point.milliseconds or 0.0 for point in points]
    figure = _curve(times, points)
    figure.update_xaxes(title_text="milliseconds an image (engine, one thread)")
    return Chart(
        key="dial-time",
        title=f"The same network takes {times[0]:.2f} to {times[-1]:.2f} ms an image",
        text="Error against the time of an image: "
        + "; ".join(f"{taken:.2f} ms, {1 - point.accuracy:.1%}" for taken, point in zip(times, points, strict=True))
        + ".",
        figure=figure,
    )


def _curve(x: list[float], points: tuple[CurvePoint, ...]) -> go.Figure:
    figure = blank(320)
    figure.add_trace(
        go.Scatter(
            x=x,
            y=[1 - point.accuracy for point in points],
            text=[f"{point.kept:.1%} of the cost, {1 - point.accuracy:.2%} error" for point in points],
            name="under the dial",
            mode="lines+markers",
            line={"color": BLUE},
            marker={"size": 8, "color": ORANGE},
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_yaxes(title_text="test error", tickformat=".1%", rangemode="tozero")
    return figure


def _ends(points: tuple[CurvePoint, ...]) -> str:
    return f"{1 - points[0].accuracy:.1%} to {1 - points[-1].accuracy:.1%}"


def _said(points: tuple[CurvePoint, ...]) -> str:
    return "; ".join(f"{1 - point.accuracy:.1%} at {point.kept:.0%}" for point in points)


def _table(points: tuple[CurvePoint, ...]) -> Table:
    rows = []
    for point in points:
        taken = Cell("") if point.milliseconds is None else Cell(f"{point.milliseconds:.3f}", point.milliseconds)
        rows.append((percent(point.kept), percent(1 - point.accuracy, 2), taken))
    return Table(("cost", "error", "ms an image"), tuple(rows))
