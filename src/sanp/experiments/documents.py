"""Tables in documents, between two markers."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sanp.core.errors import SanpError


def study_table(lines: Iterable[dict[str, Any]]) -> str:
    """A Markdown table of results lines: what was set, and what came of it."""
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
    """A document with the table between its two markers."""
    start, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
    before, found, rest = text.partition(start)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise SanpError(f"the document has no place for a table: it wants the lines {start} and {end}")
    return f"{before}{start}\n{table}\n{end}{after}"


def fill(path: Path, marker: str, table: str) -> None:
    """Puts a table into a document, between the markers of its name."""
    path.write_text(filled(path.read_text(encoding="utf-8"), marker, table), encoding="utf-8")
