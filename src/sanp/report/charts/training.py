"""How training went: accuracy, cost against the budget, and λ over the steps, the stages marked."""

from itertools import groupby

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sanp.core.colours import BLUE, GREY, ORANGE, PINK
from sanp.report.charts.chart import Chart
from sanp.report.charts.style import blank, with_axes
from sanp.report.charts.table import Cell, Table, percent
from sanp.report.epochs import EpochLine
from sanp.report.run_data import RunData


def training(run: RunData) -> Chart | None:
    """The chart; None for a run that was not trained epoch by epoch."""
    epochs = run.epochs
    if not epochs:
        return None
    gated = any(epoch.kept is not None for epoch in epochs)
    figure = _figure(epochs, gated)
    _mark_stages(figure, stages(epochs), rows=3 if gated else 1)
    return Chart(
        key="training",
        title=_title(run),
        text=_text(run),
        figure=figure,
        table=_table(epochs),
    )


def stages(epochs: tuple[EpochLine, ...]) -> list[tuple[int, int, str]]:
    """First step, last step and name of each stage."""
    found, start = [], 0
    for stage, lines in groupby(epochs, key=lambda epoch: epoch.stage):
        end = list(lines)[-1].step
        found.append((start, end, stage))
        start = end
    return found


def _mark_stages(figure: go.Figure, marked: list[tuple[int, int, str]], rows: int) -> None:
    """A line through all rows where a stage ends, and its name above; set at once, for plotly checks all each time."""
    last = marked[-1][1]
    figure.layout.shapes = [
        {
            "type": "line",
            "x0": end,
            "x1": end,
            "y0": 0,
            "y1": 1,
            "xref": f"x{row}",
            "yref": f"y{row} domain",
            "line": {"color": GREY, "width": 1, "dash": "dot"},
        }
        for _, end, _ in marked
        if end != last
        for row in ("", *range(2, rows + 1))
    ]
    figure.layout.annotations = [
        {
            "x": (start + end) / 2,
            "y": 1,
            "xref": "x",
            "yref": "paper",
            "yanchor": "bottom",
            "yshift": 22 + 15 * (place % 2),  # two heights: names of short stages do not collide
            "text": stage,
            "showarrow": False,
        }
        for place, (start, end, stage) in enumerate(marked)
    ]


def _figure(epochs: tuple[EpochLine, ...], gated: bool) -> go.Figure:
    rows = 3 if gated else 1
    empty = blank(680 if gated else 320, margin={"l": 56, "r": 12, "t": 70, "b": 48})
    figure = with_axes(make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.1, figure=empty))
    accuracies = (("test", "test_accuracy", BLUE, "solid"), ("held out", "held_out_accuracy", BLUE, "solid"))
    _lines(figure, epochs, 1, (("training", "accuracy", BLUE, "dot"), *accuracies))
    figure.update_yaxes(title_text="accuracy", tickformat=".0%", row=1, col=1)
    if gated:
        pruning = tuple(epoch for epoch in epochs if epoch.kept is not None)
        costs = (("target", "target", GREY, "dash"), ("training", "kept", ORANGE, "dot"))
        measured = (("test", "test_kept", ORANGE, "solid"), ("held out", "held_out_kept", ORANGE, "solid"))
        _lines(figure, pruning, 2, (*costs, *measured))
        _lines(figure, pruning, 3, (("λ", "cost_weight", PINK, "solid"),))
        figure.update_yaxes(title_text="cost, of dense", tickformat=".0%", rangemode="tozero", row=2, col=1)
        figure.update_yaxes(title_text="λ, weight of the cost", row=3, col=1)
    figure.update_xaxes(title_text="training steps", row=rows, col=1)
    return figure


def _lines(
    figure: go.Figure, epochs: tuple[EpochLine, ...], row: int, series: tuple[tuple[str, str, str, str], ...]
) -> None:
    """Draws fields of the epochs in a row of the figure, with a legend above it.

    ``series`` are the name, the field, the colour and the dash of each line.
    """
    legend = "legend" if row == 1 else f"legend{row}"
    unit = ".2f" if row == 3 else ".1%"
    for name, field, color, dash in series:
        if all(getattr(epoch, field) is None for epoch in epochs):  # as if the run was not tested while it trained
            continue
        trace = go.Scatter(
            x=[epoch.step for epoch in epochs],
            y=[getattr(epoch, field) for epoch in epochs],
            name=name,
            mode="lines+markers",
            marker={"size": 5},
            line={"color": color, "width": 2, "dash": dash},
            legend=legend,
            showlegend=len(series) > 1,
            hovertemplate=f"step %{{x}}: %{{y:{unit}}}<extra>{name}</extra>",
        )
        figure.add_trace(trace, row=row, col=1)
    top = figure.layout["yaxis" if row == 1 else f"yaxis{row}"].domain[1]
    place = {"orientation": "h", "x": 0, "xanchor": "left", "y": top, "yanchor": "bottom"}
    figure.update_layout({legend: place})


def _title(run: RunData) -> str:
    target, kept = run.target, run.report.kept
    if target is None or not any(epoch.kept is not None for epoch in run.epochs):
        return f"Training ends at {run.report.accuracy:.1%} of the test images right"
    gap = 100 * (kept - target)
    met = "meets" if abs(gap) <= 1 else "exceeds" if gap > 0 else "stays below"
    return f"Training {met} the budget: {kept:.1%} of the FLOPs for a budget of {target:.1%}"


def _text(run: RunData) -> str:
    parts = []
    for _, end, stage in stages(run.epochs):
        last = [epoch for epoch in run.epochs if epoch.step <= end][-1]
        measured = {"test accuracy": last.test_accuracy, "accuracy on held-out images": last.held_out_accuracy}
        said = [f"{name} {value:.1%}" for name, value in measured.items() if value is not None]
        if last.kept is not None:
            said.append(f"cost {last.kept:.1%} of dense")
        if last.cost_weight is not None:
            said.append(f"λ {last.cost_weight:.2f}")
        parts.append(f"{stage} ends at step {end}" + (": " + ", ".join(said) if said else ""))
    return (
        "Accuracy, cost and λ, the weight of the cost in the loss, over the training steps. " + "; ".join(parts) + "."
    )


def _table(epochs: tuple[EpochLine, ...]) -> Table:
    """A row for each epoch; what was not measured is empty and sorts first."""

    def share(value: float | None) -> Cell:
        return Cell("", -1.0) if value is None else percent(value)

    held_out = any(epoch.held_out_accuracy is not None for epoch in epochs)
    rows = tuple(
        (
            Cell(epoch.stage),
            Cell(f"{epoch.step}", epoch.step),
            share(epoch.accuracy),
            share(epoch.held_out_accuracy if held_out else epoch.test_accuracy),
            share(epoch.target),
            share(epoch.kept),
            share(epoch.held_out_kept if held_out else epoch.test_kept),
            Cell("", -1e9) if epoch.cost_weight is None else Cell(f"{epoch.cost_weight:.2f}", epoch.cost_weight),
        )
        for epoch in epochs
    )
    images = "held-out" if held_out else "test"
    measured = (f"{images} accuracy", "target", "cost", f"cost on {images} images")
    return Table(("stage", "step", "training accuracy", *measured, "λ"), rows)
