"""What a folder of images would train on: counts, sizes, what resizing does to them, files that cannot be read."""

import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from sanp.core.errors import SanpError
from sanp.core.files import check_replaceable, write_atomically
from sanp.core.plain_text import plain
from sanp.data.decode import Resize, check_resize, check_size, decode, decode_sized
from sanp.data.imagefolder import FileSplit, find_splits

if TYPE_CHECKING:
    from PIL.Image import Image

SHEET_IMAGES = 8
"""images of each class on the contact sheet"""
SHEET_CLASSES = 24
"""classes on the contact sheet"""
SMALLEST_TILE, LARGEST_TILE = 96, 256
"""pixels of the side of an image on the contact sheet"""
NAME_WIDTH, NAME_LETTERS = 112, 16
"""pixels to the left of the images for the names of the classes, and letters that they have room for"""


@dataclass(frozen=True, kw_only=True)
class FolderCheck:
    """What was found in a folder of images."""

    classes: tuple[str, ...]
    train: tuple[int, ...]
    """training images of each class"""
    test: tuple[int, ...]
    """test images of each class"""
    sizes: tuple[tuple[tuple[int, int], int], ...]
    """width and height with the number of images that have them, the most frequent first"""
    cut: float
    """share of the area of all images that cropping the middle square cuts off"""
    broken: tuple[str, ...]
    """why a file cannot be read, for each that cannot"""
    notes: tuple[str, ...]
    """how the images were split"""


def check_folder(path: Path, *, size: int = 32) -> FolderCheck:
    """Looks at every image under ``path`` as training at ``size`` x ``size`` would read it."""
    check_size(size)
    classes, train, test, notes = find_splits(path, size=size)
    sizes: Counter[tuple[int, int]] = Counter()
    broken: list[str] = []
    for file in (*train.files, *test.files):
        try:
            sizes[decode_sized(Path(file), size)[1]] += 1
        except SanpError as error:
            broken.append(str(error))
    area = sum(width * height * count for (width, height), count in sizes.items())
    kept = sum(min(shape) ** 2 * count for shape, count in sizes.items())
    return FolderCheck(
        classes=classes,
        train=_counts(train, len(classes)),
        test=_counts(test, len(classes)),
        sizes=tuple(sizes.most_common()),
        cut=1 - kept / area if area else 0.0,
        broken=tuple(broken),
        notes=notes,
    )


def check_sheet(file: Path, resize: str) -> None:
    """Raises an error if a contact sheet cannot be written to ``file``, or images cannot be resized so."""
    check_resize(resize)
    if file.suffix.lower() != ".png":
        raise SanpError(f"the contact sheet {file} is a PNG picture: give a name that ends in .png")
    check_replaceable(file)


def contact_sheet(path: Path, file: Path, *, size: int = 32, resize: Resize = "crop") -> None:
    """Writes a picture with a row of training images for each class, exactly as a network would get them, to ``file``.

    ``path`` is the folder of the images; ``size`` and ``resize`` are those of the recipe. Images larger than
    ``LARGEST_TILE`` are shown smaller.
    """
    from PIL import Image as images

    check_size(size)
    check_sheet(file, resize)
    classes, train, _, _ = find_splits(path, size=size)
    side = min(max(size, SMALLEST_TILE), LARGEST_TILE)
    rows = []
    for label in range(min(len(classes), SHEET_CLASSES)):
        of_class = (train.labels == label).nonzero().flatten()[:SHEET_IMAGES]
        tiles = [_tile(Path(train.files[position]), size, side, resize) for position in of_class.tolist()]
        blank = np.full((side + 4, side + 4, 3), 255, np.uint8)
        rows.append(np.concatenate([*tiles, *([blank] * (SHEET_IMAGES - len(tiles)))], 1))
    sheet = _with_names(images.fromarray(np.concatenate(rows)), classes[: len(rows)], side + 4)
    write_atomically(file, lambda temporary: sheet.save(temporary, "PNG"))


def _with_names(sheet: "Image", names: tuple[str, ...], row: int) -> "Image":
    """The sheet with number and name of each class before its row, which is ``row`` pixels high.

    The font that Pillow brings has the letters of ASCII; a ? stands for any other.
    """
    from PIL import Image as images
    from PIL import ImageDraw

    wide = images.new("RGB", (NAME_WIDTH + sheet.width, sheet.height), "white")
    wide.paste(sheet, (NAME_WIDTH, 0))
    pen = ImageDraw.Draw(wide)
    for index, name in enumerate(names):
        text = f"{index + 1}. {plain(name).encode('ascii', 'replace').decode()}"
        lines = textwrap.wrap(text, NAME_LETTERS, max_lines=3, placeholder="...")
        pen.multiline_text((4, index * row + row // 2), "\n".join(lines), fill="black", anchor="lm")
    return wide


def _tile(path: Path, size: int, side: int, resize: Resize) -> npt.NDArray[np.uint8]:
    """An image with a white border, scaled to ``side`` pixels; a red one if it cannot be read."""
    try:
        pixels = torch.from_numpy(decode(path, size, resize).copy()).float()[None]
    except SanpError:
        pixels = torch.tensor([255.0, 0.0, 0.0]).view(1, 3, 1, 1).expand(1, 3, size, size)
    large = torch.nn.functional.interpolate(pixels, (side, side))[0].byte().permute(1, 2, 0).numpy()
    return np.pad(large, ((2, 2), (2, 2), (0, 0)), constant_values=255)


def _counts(split: FileSplit, classes: int) -> tuple[int, ...]:
    return tuple(torch.bincount(split.labels, minlength=classes).tolist())
