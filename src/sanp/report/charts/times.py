"""What a benchmark measured: the time of everything that was timed, and the engine's time against FLOPs."""

from collections.abc import Sequence

import plotly.graph_objects as go

from sanp.core.colours import BLUE, GREEN, GREY
from sanp.engine.bench.bench import OWN, Bench, BenchRow
from sanp.engine.bench.runtimes import FP32
from sanp.report.charts.chart import Chart
from sanp.report.charts.style import axis_names, blank
from sanp.report.charts.table import Cell, Table, percent

BAR = 28
"""pixels of height for a bar"""


def in_engine(row: BenchRow) -> bool:
    """Whether the engine ran it, and not another runtime."""
    return row.what.startswith("engine")


def best_dense(found: Bench) -> BenchRow | None:
    """The fastest dense fp32 runtime, if one was timed."""
    return min((row for row in found.rows if row.what in FP32), key=lambda row: row.ms, default=None)


def shown_first(found: Bench) -> BenchRow:
    """The pruned network: as it is, or else the cheapest that was timed."""
    own = [row for row in found.rows if in_engine(row)]
    return next((row for row in own if row.what.endswith("as it is")), min(own, key=lambda row: row.kept))


def time_bars(found: Bench) -> Chart:
    """A bar for everything that was timed, the fastest on top."""
    rows = sorted(found.rows, key=lambda row: row.ms)
    best, pruned = best_dense(found), shown_first(found)
    figure = blank(100 + BAR * len(rows), showlegend=False)
    figure.add_trace(
        go.Bar(
            y=axis_names([row.what for row in rows]),
            x=[row.ms for row in rows],
            orientation="h",
            marker_color=[BLUE if in_engine(row) else GREY if row.what in FP32 else GREEN for row in rows],
            text=[f"{_ms(row.ms)} ms" for row in rows],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{x:.3f} ms<extra></extra>",
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(title_text="milliseconds an image", rangemode="tozero")
    figure.update_layout(margin_r=72)  # the numbers beside the bars
    faster = "" if best is None else f", {best.ms / pruned.ms:.1f} times faster than {best.what}"
    said = "; ".join(f"{row.what} {_ms(row.ms)} ms" for row in rows)
    return Chart(
        key="times",
        title=f"{pruned.what}: {_ms(pruned.ms)} ms an image{faster}",
        text=f"Milliseconds an image, the fastest first: {said}. Blue: this engine; grey: dense fp32 runtimes; green: "
        "other number formats or devices.",
        figure=figure,
    )


def time_by_flops(found: Bench) -> Chart:
    """The engine's time at every cost that was timed, and where time would be proportional to FLOPs."""
    own = sorted((row for row in found.rows if in_engine(row)), key=lambda row: row.kept)
    dense = next(row for row in own if row.what == OWN)
    others = [row for row in found.rows if not in_engine(row)]
    figure = blank(400)
    ideal = {"color": GREY, "dash": "dot"}
    figure.add_trace(go.Scatter(x=[0, 1], y=[0, dense.ms], mode="lines", name="proportional to FLOPs", line=ideal))
    for name, rows, mode, color, symbol in (
        ("engine", own, "lines+markers", BLUE, "circle"),
        ("dense runtimes", others, "markers", GREY, "x"),
    ):
        if rows:
            figure.add_trace(
                go.Scatter(
                    x=[row.kept for row in rows],
                    y=[row.ms for row in rows],
                    text=axis_names([row.what for row in rows]),
                    name=name,
                    mode=mode,
                    marker={"color": color, "symbol": symbol, "size": 9},
                    line={"color": color},
                    cliponaxis=False,
                    hovertemplate="%{text}: %{x:.0%} of the FLOPs, %{y:.3f} ms<extra></extra>",
                )
            )
    figure.update_xaxes(title_text="FLOPs, of dense", range=[0, 1], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1])
    figure.update_layout(margin_r=28)  # half of the last mark's text
    figure.update_yaxes(title_text="milliseconds an image", rangemode="tozero")
    least = own[0]
    said = "; ".join(f"{row.kept:.0%} of the FLOPs {_ms(row.ms)} ms" for row in own)
    return Chart(
        key="against-flops",
        title=f"With {least.kept:.0%} of the FLOPs the engine takes {least.ms / dense.ms:.0%} of its dense time",
        text=f"The engine at each cost: {said}. On the dotted line time would fall as FLOPs do.",
        figure=figure,
    )


def times_table(rows: Sequence[BenchRow]) -> Table:
    """All rows, with how many times faster each is."""
    headings = ("what", "FLOPs", "ms an image", "times faster than best dense", "than the engine's dense")
    return Table(headings, tuple(_cells(row) for row in rows))


def _cells(row: BenchRow) -> tuple[Cell, ...]:
    best = Cell("", 0.0) if row.of_best_dense is None else _times(1 / row.of_best_dense)
    return (Cell(row.what), percent(row.kept), Cell(_ms(row.ms), row.ms), best, _times(1 / row.of_own_dense))


def _times(factor: float) -> Cell:
    return Cell(f"{factor:.2f}", factor)


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:,.0f}"
