"""What each layer keeps: its share of channels, their types (paper, figure 3), and its FLOPs before and after."""

import plotly.graph_objects as go

from sanp.core.colours import BLUE, GREEN, GREY, ORANGE
from sanp.evaluation import LayerReport
from sanp.gating.flops import human
from sanp.report.charts.chart import Chart
from sanp.report.charts.style import axis_names, blank
from sanp.report.charts.table import Cell, Table, millions, number, percent
from sanp.report.run_data import RunData

ROW = 24
"""pixels of height for a layer"""
HALF_OF_100 = 24
"""pixels to the right of an axis that ends at 100%: plotly hides a label that has no room for all of it"""


def layer_charts(run: RunData) -> list[Chart]:
    """Three charts: the share of channels that each layer computes, their types, and its FLOPs."""
    layers = run.report.layers
    return [kept_by_layer(layers), types_by_layer(layers), flops_by_layer(layers)]


def layer_table(layers: tuple[LayerReport, ...]) -> Table:
    """All that is known of the layers, a row each."""
    headings = (
        "layer",
        "channels",
        "kept",
        "never pruned",
        "sometimes",
        "always pruned",
        "FLOPs before (M)",
        "FLOPs after (M)",
        "kept FLOPs",
    )
    rows = tuple(
        (
            Cell(layer.name, place),
            number(layer.channels),
            percent(layer.kept),
            number(layer.never),
            number(layer.sometimes),
            number(layer.always),
            millions(layer.dense_flops),
            millions(layer.flops),
            percent(layer.flops / max(1, layer.dense_flops)),
        )
        for place, layer in enumerate(layers)
    )
    return Table(headings, rows)


def kept_by_layer(layers: tuple[LayerReport, ...]) -> Chart:
    """The share of its channels that each layer computes, and beside it what the layer costs."""
    figure = _bars(len(layers))
    figure.add_trace(
        go.Bar(
            y=_names(layers),
            x=[layer.kept for layer in layers],
            orientation="h",
            marker_color=BLUE,
            text=[f"{layer.kept:.0%}, {human(layer.flops)}" for layer in layers],
            textfont={"size": 11},
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{x:.1%} of its channels<extra></extra>",
        )
    )
    figure.update_xaxes(title_text="channels computed", tickformat=".0%")
    figure.update_xaxes(range=[0, 1], tickvals=[0, 0.25, 0.5, 0.75, 1])
    figure.update_layout(margin_r=100)  # the numbers beside the bars
    low, high = min(layers, key=lambda layer: layer.kept), max(layers, key=lambda layer: layer.kept)
    said = "; ".join(f"{layer.name} {layer.kept:.0%} at {human(layer.flops)}" for layer in layers)
    return Chart(
        key="kept",
        title=f"Layers keep from {low.kept:.0%} ({low.name}) to {high.kept:.0%} ({high.name}) of their channels",
        text=f"Mean share of channels computed, and beside it multiply-adds per image: {said}.",
        figure=figure,
        table=layer_table(layers),
    )


def types_by_layer(layers: tuple[LayerReport, ...]) -> Chart:
    """How many channels of each layer are never, sometimes and always pruned."""
    figure = _bars(len(layers))
    total = sum(layer.channels for layer in layers)
    sums = {}
    for kind, name, color in (
        ("never", "never pruned", GREEN),
        ("sometimes", "pruned for some images", ORANGE),
        ("always", "always pruned", GREY),
    ):
        counts = [int(getattr(layer, kind)) for layer in layers]
        sums[name] = sum(counts)
        figure.add_trace(
            go.Bar(
                y=_names(layers),
                x=[count / layer.channels for count, layer in zip(counts, layers, strict=True)],
                customdata=counts,
                name=name,
                orientation="h",
                marker_color=color,
                hovertemplate="%{y}: %{customdata} channels, %{x:.1%}<extra>" + name + "</extra>",
            )
        )
    figure.update_layout(barmode="stack", legend={"traceorder": "normal"})
    figure.update_xaxes(title_text="share of the channels", tickformat=".0%", range=[0, 1])
    figure.update_xaxes(tickvals=[0, 0.25, 0.5, 0.75, 1])
    figure.update_layout(margin_r=HALF_OF_100)
    said = ", ".join(f"{count:,} {name}" for name, count in sums.items())
    return Chart(
        key="types",
        title=f"{sums['pruned for some images'] / total:.0%} of all channels depend on the image",
        text=f"Of {total:,} channels, {said}. The table gives the numbers of each layer.",
        figure=figure,
        table=layer_table(layers),
    )


def flops_by_layer(layers: tuple[LayerReport, ...]) -> Chart:
    """The FLOPs of each layer before and after pruning."""
    figure = _bars(len(layers), ROW + 10)
    for name, values, color in (
        ("before", [layer.dense_flops for layer in layers], GREY),
        ("after, mean over images", [layer.flops for layer in layers], BLUE),
    ):
        figure.add_trace(
            go.Bar(
                y=_names(layers),
                x=[value / 1e6 for value in values],
                name=name,
                orientation="h",
                marker_color=color,
                hovertemplate="%{y}: %{x:,.2f} million<extra>" + name + "</extra>",
            )
        )
    figure.update_layout(barmode="group", legend={"traceorder": "normal"})
    figure.update_xaxes(title_text="multiply-adds per image (M)", rangemode="tozero")
    saved = max(layers, key=lambda layer: layer.dense_flops - layer.flops)
    less = saved.dense_flops - saved.flops
    share = less / max(1.0, sum(layer.dense_flops - layer.flops for layer in layers))
    return Chart(
        key="flops",
        title=f"{saved.name} saves most: {human(less)} multiply-adds an image, {share:.0%} of all that is saved",
        text="Multiply-adds per image before and after pruning: "
        + "; ".join(f"{layer.name} {human(layer.dense_flops)} to {human(layer.flops)}" for layer in layers)
        + ".",
        figure=figure,
        table=layer_table(layers),
    )


def _names(layers: tuple[LayerReport, ...]) -> list[str]:
    return axis_names([layer.name for layer in layers])


def _bars(count: int, row: int = ROW) -> go.Figure:
    """An empty chart of horizontal bars, the first layer on top: long names have room on a phone too."""
    figure = blank(110 + row * count)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure
