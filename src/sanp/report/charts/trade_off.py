"""The trade-off of several runs: accuracy against FLOPs, with the Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from sanp.core.colours import BLUE, GREY, ORANGE
from sanp.gating.flops import human
from sanp.report.charts.chart import Chart
from sanp.report.charts.style import axis_names, blank
from sanp.report.run_data import RunData


@dataclass(frozen=True, kw_only=True)
class Point:
    """A pruned network and the one that it came from: what they cost and how often they are right."""

    name: str
    flops: float
    accuracy: float
    dense_flops: float
    dense_accuracy: float


def trade_off_of_runs(runs: list[RunData]) -> Chart:
    """Accuracy against FLOPs of finished runs, with the Pareto front."""
    return trade_off(
        [
            Point(
                name=run.name,
                flops=run.report.flops,
                accuracy=run.report.accuracy,
                dense_flops=run.report.dense_flops,
                dense_accuracy=run.dense_accuracy,
            )
            for run in runs
        ]
    )


def trade_off(points: list[Point]) -> Chart:
    """Accuracy against FLOPs, with the Pareto front."""
    front = pareto([(point.flops, point.accuracy) for point in points])
    figure = blank(420)
    before = sorted({(point.dense_flops, point.dense_accuracy) for point in points})
    figure.add_trace(_points("before pruning", before, [""] * len(before), GREY, "diamond-open"))
    best = [points[index] for index in front]
    figure.add_trace(
        go.Scatter(
            x=[point.flops / 1e6 for point in best],
            y=[point.accuracy for point in best],
            name="Pareto front",
            mode="lines",
            line={"color": ORANGE, "shape": "hv", "width": 2},
            hoverinfo="skip",
        )
    )
    after = [(point.flops, point.accuracy) for point in points]
    figure.add_trace(_points("after", after, _labels([point.name for point in points]), BLUE, "circle"))
    figure.update_xaxes(title_text="multiply-adds per image (M)", rangemode="tozero")
    figure.update_yaxes(title_text="test accuracy", tickformat=".1%")
    said = "; ".join(f"{point.name} {point.accuracy:.1%} at {human(point.flops)}" for point in points)
    names = ", ".join(point.name for point in best)
    return Chart(
        key="trade",
        title=f"{len(front)} of {len(points)} runs are on the front: no other is both cheaper and better",
        text=f"Test accuracy and multiply-adds per image: {said}. On the front: {names}.",
        figure=figure,
    )


def pareto(points: list[tuple[float, float]]) -> list[int]:
    """Positions of the points (cost, accuracy) that no other point beats, from the cheapest to the dearest.

    A point is beaten by another that is no worse in both numbers and better in one.
    """
    order = sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1]))
    front: list[int] = []
    for index in order:
        if not front or points[index][1] > points[front[-1]][1] or points[index] == points[front[-1]]:
            front.append(index)
    return front


def _labels(names: list[str]) -> list[str]:
    """Names beside the points, while there is room for them."""
    return axis_names(names) if len(names) <= 8 else [""] * len(names)


def _points(name: str, points: Sequence[tuple[float, float]], labels: list[str], color: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        x=[flops / 1e6 for flops, _ in points],
        y=[accuracy for _, accuracy in points],
        text=labels,
        name=name,
        mode="markers+text",
        textposition="top center",  # the front comes from below and leaves to the right
        marker={"color": color, "size": 10, "symbol": symbol},
        cliponaxis=False,
        hovertemplate="%{text} %{x:,.1f}M, %{y:.2%}<extra>" + name + "</extra>",
    )
