"""What the images of each class cost: a box for each class, and a table of all of them."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from sanp.core.colours import BLUE
from sanp.gating.flops import human
from sanp.report.charts.chart import Chart
from sanp.report.charts.style import axis_names, blank
from sanp.report.charts.table import Cell, Table, millions, number, percent
from sanp.report.study import FloatArray, Study

DRAWN_CLASSES = 30
"""of more classes the cheapest and the dearest are drawn; the table has all"""


def class_costs(study: Study) -> Chart:
    """FLOPs by class: quartiles, and the range without its outer tenths."""
    flops = {
        name: study.flops[study.labels == index]
        for index, name in enumerate(study.classes)
        if (study.labels == index).any()
    }
    order = sorted(flops, key=lambda name: float(np.median(flops[name])))
    half = DRAWN_CLASSES // 2
    drawn = order if len(order) <= DRAWN_CLASSES else order[:half] + order[-half:]
    cut = "" if len(drawn) == len(order) else f" The {half} cheapest and the {half} dearest classes; the table has all."
    low, high = (human(float(np.median(flops[name]))) for name in (order[0], order[-1]))
    return Chart(
        key="classes",
        title=f"“{order[0]}” is the cheapest class, “{order[-1]}” the dearest",
        text=(
            "Box: the middle half of a class's images, the line in it the median; whiskers: from the tenth to the "
            f"ninetieth percentile. Medians: {order[0]} {low}, {order[-1]} {high}.{cut}"
        ),
        figure=_boxes({name: flops[name] for name in drawn}),
        table=_table(study, {name: flops[name] for name in order}),
    )


def _boxes(flops: Mapping[str, FloatArray]) -> go.Figure:
    """A box for each class, from top to bottom."""
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    quantiles = np.array([np.quantile(each / 1e6, shares) for each in flops.values()]).T  # (5, K)
    figure = blank(110 + 26 * len(flops), showlegend=False)
    figure.add_trace(
        go.Box(
            y=axis_names(list(flops)),
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
    return figure


def _table(study: Study, flops: Mapping[str, FloatArray]) -> Table:
    right = {name: study.right[study.labels == index] for index, name in enumerate(study.classes)}
    rows = tuple(
        (
            Cell(name),
            number(len(each)),
            millions(float(np.median(each))),
            millions(float(np.quantile(each, 0.1))),
            millions(float(np.quantile(each, 0.9))),
            percent(float(right[name].mean())),
        )
        for name, each in flops.items()
    )
    return Table(("class", "images", "median (M)", "10 % (M)", "90 % (M)", "accuracy"), rows)
