"""A chart: a plotly figure, a title that says what to see in it, and the same in words and in a table."""

from collections.abc import Mapping
from dataclasses import dataclass

import plotly.graph_objects as go

from sanp.report.charts.table import Table


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
    """Charts that the reader chooses between, as those of one layer or another; every option has as many charts."""

    key: str
    label: str
    """what is chosen"""
    options: Mapping[str, tuple[Chart, ...]]
    first: str
    """the option shown first"""
