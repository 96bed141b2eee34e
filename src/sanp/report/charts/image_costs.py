"""What each image costs: the histogram (paper, figure 4), and right answers against wrong ones."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from sanp.core.colours import BLUE, GREEN, ORANGE
from sanp.gating.flops import human
from sanp.report.charts.chart import Chart
from sanp.report.charts.class_costs import class_costs
from sanp.report.charts.style import blank
from sanp.report.charts.table import Table, millions, number
from sanp.report.run_data import RunData
from sanp.report.study import FloatArray, Study

BARS = 40
"""bars of the histogram of all images"""


def image_charts(run: RunData) -> list[Chart]:
    """The histogram; with a study of the images also their classes, and right answers against wrong ones.

    There are none if all images cost the same.
    """
    flops, study = run.report.per_sample, run.study
    if not np.ptp(flops) > 0:
        return []
    charts = [histogram(flops, run.report.dense_flops)]
    if study is not None and study.varies:
        charts.append(class_costs(study))
        if study.right.any() and not study.right.all():
            charts.append(right_and_wrong(study))
    return charts


def histogram(flops: FloatArray, dense: float) -> Chart:
    """How many images cost how much; ``dense`` is the FLOPs of the dense network."""
    edges = np.histogram_bin_edges(flops / 1e6, BARS)
    counts, _ = np.histogram(flops / 1e6, edges)
    low, middle, high = np.quantile(flops, (0, 0.5, 1))
    figure = _histogram(edges, {"images": (counts / len(flops), BLUE)})
    mean = float(flops.mean()) / 1e6
    figure.add_vline(x=mean, line={"color": ORANGE, "width": 2, "dash": "dash"})
    figure.add_annotation(
        x=mean, y=1, yref="paper", yanchor="bottom", text=f"mean {human(1e6 * mean)}", showarrow=False
    )
    return Chart(
        key="histogram",
        title=f"The dearest image costs {high / low:.1f} times the cheapest" if low else "Some images cost nothing",
        text=(
            f"Multiply-adds per image over {len(flops):,} test images: from {human(low)} ({low / dense:.0%} of dense) "
            f"to {human(high)} ({high / dense:.0%}), median {human(middle)}, mean {human(float(flops.mean()))}."
        ),
        figure=figure,
        table=Table(
            ("from (M)", "to (M)", "images"),
            tuple(
                (millions(start * 1e6), millions(end * 1e6), number(count))
                for start, end, count in zip(edges[:-1], edges[1:], counts, strict=True)
            ),
        ),
    )


def right_and_wrong(study: Study) -> Chart:
    """How many images cost how much, as shares of the right answers and of the wrong ones."""
    right, wrong = study.flops[study.right], study.flops[~study.right]
    edges = np.histogram_bin_edges(study.flops / 1e6, BARS // 2)
    shares = {
        f"right ({len(right):,})": (np.histogram(right / 1e6, edges)[0] / len(right), GREEN),
        f"wrong ({len(wrong):,})": (np.histogram(wrong / 1e6, edges)[0] / len(wrong), ORANGE),
    }
    figure = _histogram(edges, shares)
    figure.update_yaxes(title_text="share of each group")
    more = float((wrong.mean() - right.mean()) / max(1.0, right.mean()))
    if abs(more) < 0.005:
        said = "cost as much as"
    else:
        said = f"cost {abs(more):.1%} {'more' if more > 0 else 'less'} than"
    return Chart(
        key="right-wrong",
        title=f"Images it gets wrong {said} those it gets right",
        text=(
            f"{len(right):,} images answered rightly cost {human(float(right.mean()))} multiply-adds in the mean, "
            f"{len(wrong):,} answered wrongly {human(float(wrong.mean()))}."
        ),
        figure=figure,
    )


def _histogram(edges: FloatArray, series: Mapping[str, tuple[FloatArray, str]]) -> go.Figure:
    """Bars between ``edges`` of one distance; ``series`` gives names their bars' heights and colour.

    Two series lie over each other.
    """
    figure = blank(320, barmode="overlay", showlegend=len(series) > 1)
    middles, width = (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]
    for name, (shares, color) in series.items():
        figure.add_trace(
            go.Bar(
                x=middles,
                y=shares,
                width=float(width) * 0.96,
                name=name,
                marker_color=color,
                opacity=1 if len(series) == 1 else 0.6,
                hovertemplate="about %{x:,.1f}M: %{y:.1%}<extra>" + name + "</extra>",
            )
        )
    figure.update_xaxes(title_text="multiply-adds per image (M)")
    figure.update_yaxes(title_text="share of the images", tickformat=".0%")
    return figure
