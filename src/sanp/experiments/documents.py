"""Puts tables into Markdown documents, between two markers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sanp.core.errors import SanpError
from sanp.core.files import read_text, write_text
from sanp.core.plain_text import plain


def table_line(cells: Iterable[str]) -> str:
    """A line of a Markdown table; what Markdown or HTML would read as its own in a cell is text."""
    return "| " + " | ".join(map(markdown_text, cells)) + " |"


def markdown_text(text: str) -> str:
    """Text for a Markdown document, in which a name from outside is nothing but a name."""
    return plain(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def table_of_rows(rows: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table of rows by their names; the first one is the head."""
    first, *others = (table_line([name, *cells]) for name, cells in rows.items())
    return "\n".join([first, "|---" * (1 + len(next(iter(rows.values())))) + "|", *others])


def study_table(lines: Iterable[dict[str, Any]]) -> str:
    """A Markdown table of results lines: accuracy before and after pruning, share of the FLOPs, and budget.

    The last column is of the deeper half of the layers: the share of the channels that some images prune, others not.
    """
    head = "| | accuracy before | accuracy after | cost | budget | deeper half: channels pruned for some images |"
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
    write_text(path, filled(read_document(path), marker, table))


def read_document(path: Path) -> str:
    """The text of a document; an error if it is no ordinary file or not UTF-8."""
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise SanpError(f"cannot read the page {path} ({error}): give a Markdown file") from error
