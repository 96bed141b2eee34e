"""`sanp data`: which data sets there are, fetching them, and checking a folder of one's own."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress as Bar
from rich.table import Column, Table

from sanp.cli.console import console, plain
from sanp.core.errors import SanpError

data_app = typer.Typer(help="Data sets: what there is, and fetching them.", no_args_is_help=True)


@data_app.command("list")
def list_data() -> None:
    """List the data sets by name, and whether they are here."""
    from sanp import data

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
    from sanp import data

    with Bar(console=console) as bar:
        task = bar.add_task(escape(plain(name)), total=None)

        def show(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=escape(plain(what)), completed=done, total=total)

        path = data.get(name, root, progress=show)
    console.print(f"{plain(name)}: {plain(path)}")


@data_app.command("check")
def check_data(
    folder: Annotated[Path, typer.Argument(help="Folder of images: CLASS/IMAGE files, or train/ and test/ of them.")],
    image_size: Annotated[int, typer.Option(help="Side to which images are scaled.")] = 32,
    resize: Annotated[str, typer.Option(help="How images become square: crop, pad or stretch.")] = "crop",
    sheet: Annotated[Path, typer.Option(help="File of the contact sheet.")] = Path("contact-sheet.png"),
) -> None:
    """Show what training on a folder would read: classes, sizes, broken files, and a sheet of the images."""
    from sanp.data.folder_check import check_folder, check_sheet, contact_sheet

    check_sheet(sheet, resize)
    found = check_folder(folder, size=image_size)
    contact_sheet(folder, sheet, size=image_size, resize=resize)  # type: ignore[arg-type]
    table = Table(Column("class", overflow="fold"), "training images", "test images")
    for name, train, test in zip(found.classes, found.train, found.test, strict=True):
        table.add_row(plain(name), str(train), str(test))
    console.print(table)
    sizes = ", ".join(f"{count} of {width}x{height}" for (width, height), count in found.sizes[:5])
    more = f" and {len(found.sizes) - 5} other sizes" if len(found.sizes) > 5 else ""
    lost = f"; {found.cut:.0%} of their area is cut off" if resize == "crop" and found.cut > 0.005 else ""
    lines = [*found.notes, f"images: {sizes}{more}", f"{resize} to {image_size}x{image_size}{lost}", *found.broken]
    for line in lines:
        console.print(plain(line), soft_wrap=True)
    console.print(f"contact sheet, as a network gets the images: {plain(sheet)}", soft_wrap=True)
    if found.broken:
        raise SanpError(f"{len(found.broken)} files cannot be read: replace or remove them")
