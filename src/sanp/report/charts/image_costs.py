"""What each image costs: the histogram (paper, figure 4), by class, and right answers against wrong ones."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from sanp.gating.flops import human
from sanp.report.charts.chart import Chart
from sanp.report.charts.style import BLUE, GREEN, ORANGE, axis_names, blank
from sanp.report.charts.table import Cell, Table, millions, number, percent
from sanp.report.run_data import RunData
from sanp.report.study import Floats, Study

BINS = 40
MOST_CLASSES = 30
"""more are shown by their ends alone; the table has all"""


def image_charts(run: RunData) -> list[Chart]:
    """Histogram; with a study of the images also classes, and right against wrong."""
    flops, study = run.report.per_sample, run.study
    if not np.ptp(flops) > 0:
        return []
    charts = [histogram(flops, run.report.dense_flops)]
    if study is not None and study.varies:
        charts.append(by_class(study))
        if study.right.any() and not study.right.all():
            charts.append(right_and_wrong(study))
    return charts


def histogram(flops: Floats, dense: float) -> Chart:
    """FLOPs per image."""
    edges = np.histogram_bin_edges(flops / 1e6, BINS)
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
    """The same, right and wrong answers each on its own scale."""
    right, wrong = study.flops[study.right], study.flops[~study.right]
    edges = np.histogram_bin_edges(study.flops / 1e6, BINS // 2)
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


def by_class(study: Study) -> Chart:
    """FLOPs by class: quartiles, and the range without its outer tenths."""
    groups = {
        name: (study.flops[study.labels == index], study.right[study.labels == index])
        for index, name in enumerate(study.classes)
        if (study.labels == index).any()
    }
    order = sorted(groups, key=lambda name: float(np.median(groups[name][0])))
    half = MOST_CLASSES // 2
    some = order if len(order) <= MOST_CLASSES else order[:half] + order[-half:]
    quantiles = np.array([np.quantile(groups[name][0] / 1e6, (0.1, 0.25, 0.5, 0.75, 0.9)) for name in some]).T
    figure = blank(110 + 26 * len(some), showlegend=False)
    figure.add_trace(
        go.Box(
            y=axis_names(some),
            lowerfence=quantiles[0],
            q1=quantiles[1],
            median=quantiles[2],
            q3=quantiles[3],
            upperfence=quantiles[4],
            orientation="h",
            line={"color": BLUE},
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", tickmode="linear")
    figure.update_xaxes(title_text="multiply-adds per image (M)")
    cut = "" if len(some) == len(order) else f" The {half} cheapest and the {half} dearest classes; the table has all."
    rows = tuple(
        (
            Cell(name),
            number(len(flops)),
            millions(float(np.median(flops))),
            millions(float(np.quantile(flops, 0.1))),
            millions(float(np.quantile(flops, 0.9))),
            percent(float(right.mean())),
        )
        for name, (flops, right) in ((name, groups[name]) for name in order)
    )
    return Chart(
        key="classes",
        title=f"“{order[0]}” is the cheapest class, “{order[-1]}” the dearest",
        text=(
            "Box: the middle half of a class's images, the line in it the median; whiskers: from the tenth to the "
            f"ninetieth percentile. Medians: {order[0]} {human(float(np.median(groups[order[0]][0])))}, {order[-1]} "
            f"{human(float(np.median(groups[order[-1]][0])))}.{cut}"
        ),
        figure=figure,
        table=Table(("class", "images", "median (M)", "10 % (M)", "90 % (M)", "accuracy"), rows),
    )


def _histogram(edges: Floats, series: Mapping[str, tuple[Floats, str]]) -> go.Figure:
    """Bars over bins of one width; two series lie over each other."""
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
