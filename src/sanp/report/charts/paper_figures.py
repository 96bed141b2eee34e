"""The paper's figures 1, 3 and 4, and accuracy against FLOPs of all methods, from results lines."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from sanp.core.colours import BLUE, GREEN, ORANGE, PINK
from sanp.core.errors import SanpError
from sanp.evaluation import LayerReport
from sanp.experiments.paper.contents import TABLES
from sanp.experiments.paper.tables import latest, length, model
from sanp.experiments.results import Line, read_run_lines
from sanp.experiments.table import display_name
from sanp.report.charts.channels import NO_TICKS, channel_order
from sanp.report.charts.chart import Chart
from sanp.report.charts.layers import types_by_layer
from sanp.report.charts.style import MARGINS, SCALE, axis_names, blank
from sanp.report.charts.trade_off import Point, trade_off

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def paper_charts(results: Path, figures: Iterable[str]) -> dict[str, Chart]:
    """Every chart that there are results lines for, by the name of its file.

    ``results`` is the folder of the lines, ``figures`` are names of ``CHARTS``.
    """
    charts: dict[str, Chart] = {}
    for figure in figures:
        files = TABLES if figure == "trade" else (figure,)
        lines = [line for name in files for line in latest(read_run_lines(results / f"{name}.jsonl"))]
        try:
            drawn = CHARTS[figure](lines)
        except (KeyError, ValueError, TypeError, IndexError, ZeroDivisionError) as error:
            why = f"a line lacks {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
            raise SanpError(
                f"{figure} cannot be drawn from {results} ({why}): remove that line, run it again"
            ) from error
        charts |= {chart.key: chart for chart in drawn}
    return charts


def captioned(charts: dict[str, Chart], folder: str) -> str:
    """Markdown that shows the files of these charts in ``folder``, each with its caption."""
    figures = [
        f"![{chart.title}]({folder}/{name}.svg)\n\n**{chart.title}.** {chart.text}" for name, chart in charts.items()
    ]
    return "\n\n".join(figures) or "No run is finished yet: `sanp reproduce fig3` says what to run."


def figure_1(lines: list[Line]) -> list[Chart]:
    """A chart of pruning rates for each backbone and method, and a chart of activations for each run."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["backbone"], line["method"]), []).append(line)
    return [pruning_rates(group) for group in groups.values()] + [activations(line) for line in lines]


def pruning_rates(lines: list[Line]) -> Chart:
    """Figure 1a: the share of its channels that each layer loses, by data set."""
    figure = blank(320, barmode="group")
    said = []
    for line, color in zip(lines, cycle((BLUE, ORANGE, GREEN, PINK))):
        rates = [1 - layer["kept"] for layer in line["layers"]]
        name = str(DATA.get(line["data"], line["data"]))
        if sum(other["data"] == line["data"] for other in lines) > 1:
            name += f" at {line['kept']:.1%}"
        figure.add_trace(go.Bar(x=list(range(1, len(rates) + 1)), y=rates, name=name, marker_color=color))
        said.append(f"{name} from {min(rates):.0%} to {max(rates):.0%} ({how_made(line)})")
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="convolution", tickmode="linear")
    figure.update_yaxes(title_text="channels pruned", tickformat=".0%", range=[0, 1])
    first = lines[0]
    network = network_of(first) if len(lines) == 1 else display_name(first["backbone"])
    return Chart(
        key=f"fig1a-{first['backbone']}-{first['method']}",
        title=f"Figure 1a: how much {display_name(first['method'])} prunes differs from layer to layer of {network}",
        text=f"Share of the channels of each convolution that is pruned: {'; '.join(said)}.",
        figure=figure,
    )


def activations(line: Line) -> Chart:
    """Figure 1b: the mean activation of each channel of the last convolution, by class."""
    mean = np.asarray(line["activation"], dtype=np.float64)  # (K, C)
    top = float(np.quantile(mean, 0.99)) or 1.0
    order = channel_order(mean / max(1e-12, float(mean.max())))
    names, count = line["classes"], mean.shape[1]
    figure = blank(150 + 18 * len(names) if len(names) <= 30 else 560, MARGINS | {"t": 40})
    bar = {"title": {"text": "mean activation", "side": "right"}, "thickness": 10, "outlinewidth": 0}
    figure.add_trace(
        go.Heatmap(z=mean[:, order], y=axis_names(names), zmin=0, zmax=top, colorscale=SCALE, colorbar=bar)
    )
    figure.update_yaxes(autorange="reversed", type="category", title_text="class")
    if len(names) > 30:
        figure.update_yaxes(**NO_TICKS)
    figure.update_xaxes(title_text="channels, by the class that drives them most", **NO_TICKS)
    strong = (mean > 0.1 * mean.max()).sum(1).mean()
    return Chart(
        key=f"fig1b-{line['name'].replace('/', '-')}",
        title=(
            f"Figure 1b: a class drives {strong:.0f} of {count} channels of the last convolution of {network_of(line)}"
        ),
        text=(
            f"Mean over a class's test images of what each channel gives after ReLU, {how_made(line)}; counted as "
            f"driven: above a tenth of the largest mean. {mean.shape[0]} classes, {count} channels that are left."
        ),
        figure=figure,
    )


def channel_types(line: Line) -> Chart:
    """Figure 3: never, sometimes and always pruned channels by layer."""
    chart = types_by_layer(tuple(LayerReport(**layer) for layer in line["layers"]))
    never, sometimes, always = (
        sum(layer[kind] for layer in line["layers"]) for kind in ("never", "sometimes", "always")
    )
    return replace(
        chart,
        key=f"fig3-{line['name'].replace('/', '-')}",
        title=f"Figure 3: {chart.title} in {network_of(line)}",
        text=(
            f"{how_made(line)}: {never:,} channels are never pruned, {sometimes:,} for some images, {always:,} always."
        ),
    )


def channels_by_image(line: Line) -> Chart:
    """Figure 4: how many channels of the last block the images compute."""
    numbers, images = np.asarray(line["computed"]), np.asarray(line["images_by_computed"])
    total = int(images.sum())
    figure = blank(320, showlegend=False)
    figure.add_trace(go.Bar(x=numbers, y=images / total, width=1.0, marker_color=BLUE))
    figure.update_xaxes(title_text=f"channels computed, of {line['block_channels']}")
    figure.update_yaxes(title_text="share of the images", tickformat=".1%")
    mean = float((numbers * images).sum()) / total
    return Chart(
        key=f"fig4-{line['name'].replace('/', '-')}",
        title=(
            f"Figure 4: images compute {numbers.min()} to {numbers.max()} channels of the last block of "
            f"{network_of(line)}"
        ),
        text=f"Over {total:,} test images, {how_made(line)}: mean {mean:.1f} of {line['block_channels']} channels.",
        figure=figure,
    )


def accuracy_against_flops(lines: list[Line]) -> list[Chart]:
    """All methods of a backbone and data set in one chart, where there are at least two."""
    groups: dict[tuple[str, str, int | None], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["data"], line["backbone"], line["images"]), []).append(line)
    charts = []
    for (data, backbone, images), group in groups.items():
        if len(group) < 2:
            continue
        points = [
            Point(
                name=f"{model(line)} {line['kept']:.0%}",
                flops=line["flops"],
                accuracy=1 - line["error"],
                dense_flops=line["dense_flops"],
                dense_accuracy=1 - line["dense_error"],
            )
            for line in group
        ]
        chart = trade_off(points)
        _label(chart, points)
        key = f"trade-{data}-{backbone}" + ("" if images is None else f"-{images}")
        charts.append(replace(chart, key=key, title=f"{network_of(group[0])}: {chart.title}"))
    return charts


def _label(chart: Chart, points: list[Point]) -> None:
    """Names every point, to its right and left in turn, since methods of one budget lie above each other."""
    order = sorted(range(len(points)), key=lambda index: points[index].accuracy)
    sides = {index: ("middle right", "middle left")[place % 2] for place, index in enumerate(order)}
    names = [point.name for point in points]
    chart.figure.data[-1].update(text=names, textposition=[sides[index] for index in range(len(points))])


def network_of(line: Line) -> str:
    """Which network on which data, and whether it was trained on some of the images only."""
    short = "" if line["images"] is None else " (short run)"
    return f"{display_name(line['backbone'])} on {DATA.get(line['data'], line['data'])}{short}"


def how_made(line: Line) -> str:
    """The method, what it left of the FLOPs, the error and the epochs."""
    return f"{model(line)} at {line['kept']:.1%} of the FLOPs, error {line['error']:.2%}, epochs {length(line)}"


CHARTS: dict[str, Callable[[list[Line]], list[Chart]]] = {
    "fig1": figure_1,
    "fig3": lambda lines: [channel_types(line) for line in lines],
    "fig4": lambda lines: [channels_by_image(line) for line in lines],
    "trade": accuracy_against_flops,
}
