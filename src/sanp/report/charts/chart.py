"""A chart: a plotly figure, a title that says what to see in it, and the same in words and in a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

# Told apart by people who see red and green alike (after Okabe and Ito 2008), and legible on white and on black.
BLUE, ORANGE, GREEN, PINK, GREY = "#3287c8", "#e07b00", "#0a9e78", "#cc6fa3", "#8b8f98"
SCALE = "Cividis"
"""one colour scale for every heat map: even in lightness, the same for all kinds of sight"""


@dataclass(frozen=True)
class Cell:
    """A table's cell: what is written, and what to sort by."""

    text: str
    value: float | None = None
    """None sorts by the text"""


@dataclass(frozen=True)
class Table:
    """Rows under headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """One figure of a page, and of a paper."""

    key: str
    """its name in the page and in files"""
    title: str
    """what to see in it"""
    text: str
    """what it shows, for people who cannot see it"""
    figure: go.Figure
    table: Table | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Charts that the reader chooses between, as those of a layer; every option has as many."""

    key: str
    label: str
    """what is chosen"""
    options: Mapping[str, tuple[Chart, ...]]
    first: str
    """the option shown first"""


MARGIN = {"l": 56, "r": 12, "t": 34, "b": 48}


def blank(height: int, margin: dict[str, int] = MARGIN, **layout: Any) -> go.Figure:
    """An empty figure in the style of all others; the page gives text and lines the colours of its theme."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        margin=margin,
        font={"family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", "size": 13},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "xanchor": "left"},
        hoverlabel={"font": {"size": 13}},
        bargap=0.15,
        **layout,
    )
    return with_axes(figure)


def with_axes(figure: go.Figure) -> go.Figure:
    """Gives all axes of a figure the common style; to be called again when it got more of them."""
    axis = {"automargin": True, "zeroline": False, "title": {"standoff": 8, "font": {"size": 13}}}
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
    return figure


LONGEST = 20
"""letters of a name on an axis"""


def axis_names(names: Sequence[str]) -> list[str]:
    """Names for an axis: shortened where they stay different, and without meaning to plotly, which reads markup."""
    short = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in names]
    chosen = short if len(set(short)) == len(set(names)) else names
    return [name.replace("&", "&amp;").replace("<", "&lt;") for name in chosen]


def percent(share: float, digits: int = 1) -> Cell:
    """A share as a cell."""
    return Cell(f"{share:.{digits}%}", share)


def millions(flops: float) -> Cell:
    """A count as a cell, in millions."""
    value = flops / 1e6
    return Cell(f"{value:,.1f}" if value >= 10 else f"{value:.3g}", flops)


def number(count: float) -> Cell:
    """A whole number as a cell."""
    return Cell(f"{count:,.0f}", count)
