"""A table of the page: cells that are written one way and sorted another."""

from dataclasses import dataclass


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


def percent(share: float, digits: int = 1) -> Cell:
    """A share from 0 to 1 as a cell in percent, with this many digits after the point."""
    return Cell(f"{share:.{digits}%}", share)


def millions(flops: float) -> Cell:
    """A number of FLOPs as a cell in millions."""
    value = flops / 1e6
    return Cell(f"{value:,.1f}" if value >= 10 else f"{value:.3g}", flops)


def number(count: float) -> Cell:
    """A whole number as a cell."""
    return Cell(f"{count:,.0f}", count)
