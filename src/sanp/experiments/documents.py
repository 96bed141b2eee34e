"""Puts tables into Markdown documents, between two markers."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sanp.core.errors import SanpError


def study_table(lines: Iterable[dict[str, Any]]) -> str:
    """A Markdown table of results lines: accuracy before and after pruning, share of the FLOPs, and budget."""
    head = "| | accuracy before | accuracy after | cost | budget | channels pruned for some images |"
    rows = [
        head,
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        accuracies = f"{1 - line['dense_error']:.2%} | {1 - line['error']:.2%}"
        costs = f"{line['kept']:.2%} | {line['config']['budget']}"
        rows.append(f"| {line['name']} | {accuracies} | {costs} | {line['sometimes_deeper_half']:.0%} |")
    return "\n".join(rows)


def filled(text: str, marker: str, table: str) -> str:
    """The document ``text`` with ``table`` between its lines ``<!-- marker -->`` and ``<!-- end of marker -->``."""
    start, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
    before, found, rest = text.partition(start)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise SanpError(f"the document has no place for a table: it wants the lines {start} and {end}")
    return f"{before}{start}\n{table}\n{end}{after}"


def fill(path: Path, marker: str, table: str) -> None:
    """Puts ``table`` into the file ``path``, as :func:`filled` does."""
    path.write_text(filled(path.read_text(encoding="utf-8"), marker, table), encoding="utf-8")
