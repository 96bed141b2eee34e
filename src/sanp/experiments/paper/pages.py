"""Pages that quote the paper's tables: documents with a place for each, filled from results lines."""

from collections.abc import Iterable
from pathlib import Path

from sanp.core.errors import SanpError
from sanp.experiments.documents import fill, read_document
from sanp.experiments.paper.tables import readme_table, results_page

PAGES = {"tables": results_page, "cifar10": readme_table}
"""marker in a document to the function that makes the text between its two lines"""


def check_pages(pages: Iterable[Path]) -> None:
    """Raises an error if a page does not exist or has no place for a table; called before training."""
    for page in pages:
        if not _markers(page):
            wanted = " or ".join(f"<!-- {marker} --> and <!-- end of {marker} -->" for marker in PAGES)
            raise SanpError(f"{page} has no place for a table: give --page a document with the lines {wanted}")


def write_pages(results: Path, recipes: Path, pages: Iterable[Path]) -> None:
    """Fills the tables of each page, at the markers that it has.

    They are made from the results files in ``results``; rows that the recipes in ``recipes`` would not make any more
    are marked.
    """
    for page in pages:
        for marker in _markers(page):
            fill(page, marker, PAGES[marker](results, recipes))


def _markers(page: Path) -> list[str]:
    text = read_document(page)
    return [marker for marker in PAGES if f"<!-- {marker} -->" in text and f"<!-- end of {marker} -->" in text]
