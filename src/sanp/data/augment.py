"""Random changes of training images: drawn for a whole epoch at once, applied to one batch after another."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from sanp.core.checks import is_whole
from sanp.core.errors import SanpError


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Which changes to make; none by default."""

    flip: bool = False
    """Mirror left and right, one image in two."""
    flip_alternates: bool = False
    """Mirror each image in every second epoch (Jordan 2024, airbench), not at random in each epoch."""
    translate: int = 0
    """Shift by up to this many pixels in each direction."""
    border: Literal["reflect", "zero"] = "reflect"
    """What a shift leaves free: the picture mirrored at its edge, or black."""
    cutout: int = 0
    """Side of a square that is set to the mean (DeVries and Taylor 2017); its centre is any pixel."""

    def __post_init__(self) -> None:
        for name in ("flip", "flip_alternates"):
            if not isinstance(getattr(self, name), bool):
                raise SanpError(f"{name} is {getattr(self, name)!r}: give true or false")
        for name in ("translate", "cutout"):
            value = getattr(self, name)
            if not is_whole(value, 0):
                raise SanpError(f"{name} is {value!r}: give a number of pixels, 0 for none")
        if self.border not in ("reflect", "zero"):
            raise SanpError(f"border is {self.border!r}: give reflect or zero")
        if self.flip_alternates and not self.flip:
            raise SanpError("flip_alternates is set without flip: set flip too, or neither")

    def standard(self, size: int) -> "Augment":
        """The usual crop of a picture with an eighth of its side as black border, and a random flip if any is made.

        ``size`` is the side of the images.
        """
        return Augment(flip=self.flip, translate=size // 8, border="zero")

    def with_cutout(self, size: int) -> "Augment":
        """These changes with shifts of up to an eighth of the side ``size``, and a square of a quarter cut out.

        They suit some thirty epochs, in which smaller changes are learned by heart (cifar10-fast; Jordan 2024).
        """
        return replace(self, translate=size // 8, cutout=size // 4)

    def check_fits(self, height: int, width: int) -> None:
        """Refuses a shift or a square that is larger than images of this height and width."""
        side = min(height, width)
        if self.translate >= side:
            raise SanpError(f"translate is {self.translate} for images of {height}x{width}: give at most {side - 1}")
        if self.cutout > side:
            raise SanpError(f"cutout is {self.cutout} for images of {height}x{width}: give at most {side}")


@dataclass(frozen=True, eq=False)
class Changes:
    """The changes drawn for a number of images, a row for each image."""

    flipped: Tensor
    """bool (N,)"""
    shift: Tensor
    """int64 (N, 2): by how many rows and columns"""
    hole: Tensor
    """int64 (N, 2): row and column of the centre of the square that is cut out"""

    def of(self, positions: Tensor) -> "Changes":
        """The changes of these images alone."""
        return Changes(self.flipped[positions], self.shift[positions], self.hole[positions])


def draw_changes(
    augment: Augment, count: int, size: tuple[int, int], *, coins: Tensor, epoch: int, generator: torch.Generator
) -> Changes:
    """The changes of ``count`` images of ``size`` (height, width) in one epoch.

    ``augment`` says which changes to make, ``generator`` draws them. ``coins`` (N,), each 0 or 1, say whether the
    alternating flip mirrors an image in odd epochs or in even ones.
    """
    reach = augment.translate
    shift = torch.randint(-reach, reach + 1, (count, 2), generator=generator)  # (N, 2)
    hole = (torch.rand(count, 2, generator=generator) * torch.tensor(size)).long()  # (N, 2)
    if augment.flip_alternates:
        flipped = (coins + epoch) % 2 == 1
    else:
        flipped = torch.randint(2, (count,), generator=generator) == 1
    return Changes(flipped & augment.flip, shift, hole)


def shift_and_flip(images: Tensor, changes: Changes, *, black: bool = False) -> Tensor:
    """The batch (B, C, H, W), of any type, shifted and mirrored; ``black`` sets what a shift leaves free to 0.

    Two gathers do it, rows before columns, since whole rows are cheap to copy.
    """
    count, channels, height, width = images.shape
    places = torch.arange(height) + changes.shift[:, :1], torch.arange(width) + changes.shift[:, 1:]
    rows, columns = _reflect(places[0], height), _reflect(places[1], width)  # (B, H), (B, W)
    columns = torch.where(changes.flipped[:, None], columns.flip(1), columns)
    planes = torch.arange(count * channels).view(count, channels, 1) * height  # (B, C, 1)
    picked = images.reshape(-1, width).index_select(0, (planes + rows[:, None]).flatten())  # (B·C·H, W)
    index = columns[:, None].expand(-1, channels * height, -1)  # (B, C·H, W)
    moved = picked.view(count, -1, width).gather(2, index).view(images.shape)
    if not black:
        return moved
    inside = [(place >= 0) & (place < size) for place, size in zip(places, (height, width), strict=True)]
    across = torch.where(changes.flipped[:, None], inside[1].flip(1), inside[1])
    return moved * (inside[0][:, None, :, None] & across[:, None, None, :])


def cut_out(images: Tensor, changes: Changes, side: int) -> Tensor:
    """Sets a square of this side in each normalised image to 0, which is the mean, in place."""
    height, width = images.shape[2:]
    top, left = (changes.hole - side // 2).unsqueeze(2).unbind(1)  # (B, 1) each
    in_rows = (torch.arange(height) >= top) & (torch.arange(height) < top + side)  # (B, H)
    in_columns = (torch.arange(width) >= left) & (torch.arange(width) < left + side)  # (B, W)
    return images.masked_fill_((in_rows[:, :, None] & in_columns[:, None, :])[:, None], 0.0)


def _reflect(positions: Tensor, size: int) -> Tensor:
    """Positions outside 0..size-1 mirrored at the first and the last pixel, which are not repeated."""
    return (size - 1) - ((size - 1) - positions.abs()).abs()
