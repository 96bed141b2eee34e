"""The look that all figures share: the scale of heat maps, margins, axes, and names that fit on an axis."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from sanp.core.plain_text import plain

SCALE = "Cividis"
"""one colour scale for every heat map: even in lightness, the same for all kinds of sight"""
LIGHT, DARK = ("#1b1f27", "#d5d9e0"), ("#e9ecf1", "#3a414d")
"""colours of text and of lines on a light and on a dark page, as in ``parts/page.css``"""
MARGINS = {"l": 56, "r": 12, "t": 34, "b": 48}
"""pixels to the left, right, top and bottom"""
LONGEST = 20
"""letters of a name on an axis"""


def blank(height: int, margin: dict[str, int] = MARGINS, **layout: Any) -> go.Figure:
    """An empty figure of this height in pixels; the page gives text and lines the colours of its theme.

    ``layout`` is more of plotly's layout, as ``showlegend=False``.
    """
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
    """Gives all axes that a figure has now the common style; call it again after adding axes."""
    axis = {"automargin": True, "zeroline": False, "title": {"standoff": 8, "font": {"size": 13}}}
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
    return figure


def axis_names(names: Sequence[str]) -> list[str]:
    """Names for an axis: shortened where they stay different, and escaped, since plotly reads markup in them."""
    short = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in names]
    chosen = short if len(set(short)) == len(set(names)) else names
    return [plain(name).replace("&", "&amp;").replace("<", "&lt;") for name in chosen]
