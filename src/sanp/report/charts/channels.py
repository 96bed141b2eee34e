"""Which class uses which channel of a layer (paper, figure 1b), and how alike two classes' gates are."""

import numpy as np
import plotly.graph_objects as go

from sanp.report.charts.chart import Chart, Choice
from sanp.report.charts.style import MARGINS, SCALE, axis_names, blank
from sanp.report.run_data import RunData
from sanp.report.study import FloatArray, IntArray

NO_TICKS = {"tickvals": [0], "ticktext": [" "], "ticks": ""}
"""an axis with one empty label: without any label, plotly draws the axis title over the map"""
BELOW_NAMES = 28
"""pixels from the axis to its title where names stand between them; plotly counts from the axis of a map"""


def channel_choice(run: RunData) -> Choice | None:
    """Two charts for each layer whose gates depend on the image; nothing if no layer's do."""
    study = run.study
    if study is None:
        return None
    present = np.bincount(study.labels, minlength=len(study.classes)) > 0
    names = [name for name, there in zip(study.classes, present, strict=True) if there]
    options = {}
    for layer in (layer.name for layer in run.report.layers if layer.name in study.open):
        rows = study.open[layer][present]
        if ((rows > 0) & (rows < 1)).any() or np.ptp(rows, axis=0).any():
            options[layer] = (usage(layer, names, rows), alikeness(layer, names, rows))
    if not options:
        return None
    return Choice(key="channels", label="layer", options=options, first=list(options)[-1])


def usage(layer: str, names: list[str], shares: FloatArray) -> Chart:
    """A map of classes and channels.

    ``shares`` (K, C) are the shares of each class's images for which a channel is computed, ``names`` those of the
    classes.
    """
    order = channel_order(shares)
    figure = blank(150 + 18 * len(names) if len(names) <= 30 else 700, MARGINS | {"t": 72})
    figure.add_trace(
        go.Heatmap(
            z=np.round(100 * shares[:, order]).astype(np.uint8),
            y=axis_names(names),
            customdata=np.broadcast_to(order, (len(names), len(order))).astype(np.uint16),
            zmin=0,
            zmax=100,
            colorscale=SCALE,
            colorbar=_bar("images that compute it, %", [0, 50, 100]),
            hovertemplate="%{y}, channel %{customdata}: computed for %{z} % of its images<extra></extra>",
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", title_text="class")
    figure.update_xaxes(title_text="channels, ordered by use", title_standoff=16, **NO_TICKS)
    sometimes = ((shares > 0).any(0) & (shares < 1).any(0)).sum()
    apart = np.ptp(shares, axis=0)
    widest = int(apart.argmax())
    used = shares[:, widest]
    most, least = names[int(used.argmax())], names[int(used.argmin())]
    return Chart(
        key="usage",
        title=f"{layer}: {sometimes} of {shares.shape[1]} channels are computed for some images only",
        text=(
            f"Share of each class's images for which each channel of {layer} is computed: on the left the channels "
            "that all images compute, then by the class that uses them most, on the right those that none computes. "
            f"Classes differ most in channel {widest}: {used.max():.0%} of {most}, {used.min():.0%} of {least}. "
            f"On average {np.mean(shares):.0%} of the channels are computed."
        ),
        figure=figure,
    )


def alikeness(layer: str, names: list[str], shares: FloatArray) -> Chart:
    """A map of pairs of classes: how often an image of one and an image of the other decide alike on a channel.

    The arguments are those of ``usage``. Channels that are the same for all images do not count.
    """
    alike = agreement(shares)
    shown = np.round(100 * alike, 1)
    figure = blank(170 + 22 * len(names) if len(names) <= 24 else 680, MARGINS | {"t": 72})
    figure.add_trace(
        go.Heatmap(
            z=shown,
            x=axis_names(names),
            y=axis_names(names),
            colorscale=SCALE,
            colorbar=_bar("same decisions, %", [float(shown.min()), float(shown.max())]),
            hovertemplate="%{y} and %{x}: %{z} %<extra></extra>",
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", title_text="class of one image")
    figure.update_xaxes(type="category", title_text="class of the other image", title_standoff=BELOW_NAMES)
    if len("".join(names)) > 30:  # no room for the names; they stand in the same order at the side
        figure.update_xaxes(**NO_TICKS, title_text="the other's class, same order")
    others = np.where(np.eye(len(names), dtype=bool), np.nan, alike)
    if len(names) < 2:
        title, ends = f"{layer}: one class only", ""
    else:
        near, far = (np.unravel_index(int(pick(others)), others.shape) for pick in (np.nanargmax, np.nanargmin))
        title = f"{layer}: {names[near[0]]} and {names[near[1]]} decide most alike"
        ends = (
            f" Most alike: {names[near[0]]} and {names[near[1]]}, {others[near]:.0%}; least: {names[far[0]]} and "
            f"{names[far[1]]}, {others[far]:.0%}. Two images of one class: {np.mean(np.diag(alike)):.0%}."
        )
    return Chart(
        key="alike",
        title=title,
        text=f"How often two images take the same decision on a channel of {layer} that is not the same for all.{ends}",
        figure=figure,
    )


def agreement(shares: FloatArray) -> FloatArray:  # (K, C) -> (K, K)
    """The chance that two independent images decide alike, p q + (1 - p)(1 - q), in the mean over changing channels."""
    changing = shares[:, (shares > 0).any(0) & (shares < 1).any(0)].astype(np.float64)
    if not changing.shape[1]:
        return np.ones((len(shares), len(shares)))
    both: FloatArray = (changing @ changing.T + (1 - changing) @ (1 - changing).T) / changing.shape[1]
    return both


def channel_order(shares: FloatArray) -> IntArray:
    """The order of the channels in a map, from shares (K, C).

    First those that all images compute, then by the class that uses each most, last those that none computes.
    """
    mean = shares.mean(0)
    group = np.where(mean == 1, -1, np.where(mean == 0, len(shares), shares.argmax(0)))
    return np.lexsort((-mean, group))


def _bar(title: str, ticks: list[float]) -> dict[str, object]:
    """A colour bar above the map, where it takes no width from it."""
    place = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "len": 0.7, "ypad": 6}
    text = {"text": title, "side": "top", "font": {"size": 12}}
    marks = {"tickvals": ticks, "tickformat": ".0f", "tickangle": 0}
    return {"title": text, "thickness": 8, "outlinewidth": 0, **marks, **place}
