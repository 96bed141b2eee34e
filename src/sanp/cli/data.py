"""`sanp data`: which data sets there are, and fetching them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress as Bar
from rich.table import Column, Table

from sanp import data
from sanp.cli.console import console, plain

data_app = typer.Typer(help="Data sets: what there is, and fetching them.", no_args_is_help=True)


@data_app.command("list")
def list_data() -> None:
    """List the data sets by name, and whether they are here."""
    table = Table("name", "images", "classes", "size", Column("here", overflow="fold"))
    for entry in data.describe():
        size = f"{entry.bytes / 1e6:.0f} MB"
        table.add_row(
            entry.name, str(entry.images), str(entry.classes), size, plain(entry.path) if entry.here else "no"
        )
    console.print(table)


@data_app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="Name of the data set, as sanp data list shows it.")],
    root: Annotated[Path | None, typer.Option(help="Folder to keep it in (default: $SANP_DATA or the cache).")] = None,
) -> None:
    """Fetch a data set and check it."""
    with Bar(console=console) as bar:
        task = bar.add_task(escape(plain(name)), total=None)

        def show(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=escape(plain(what)), completed=done, total=total)

        path = data.get(name, root, progress=show)
    console.print(f"{plain(name)}: {plain(path)}")
