"""Labelled images: what every split of a data set offers, and the split whose images are all in memory."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sanp.core.batch_checks import described
from sanp.core.errors import SanpError


class Examples(Protocol):
    """Labelled images of one shape, in memory or on disk."""

    @property
    def labels(self) -> Tensor:
        """The class of every image, int64 (N,)."""
        ...

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        ...

    def __len__(self) -> int: ...

    def read(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """For every tensor of positions in ``batches``, those images as uint8 (B, C, H, W)."""
        ...

    def take(self, positions: Tensor) -> "Examples":
        """The split of these positions alone."""
        ...


@dataclass(frozen=True, eq=False)
class Split:
    """Images in memory, one byte for each value; checked when made."""

    images: Tensor
    """uint8 (N, C, H, W)"""
    labels: Tensor
    """int64 (N,)"""

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.ndim != 4:
            raise SanpError(f"images are {described(images)}: give a uint8 tensor (N, C, H, W), values 0 to 255")
        if images.shape[1] not in (1, 3) or min(images.shape[2:]) < 1:
            raise SanpError(f"images are {described(images)}: give 1 or 3 channels and at least one pixel")
        check_labels(labels, len(images))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """For every tensor of positions in ``batches``, those images as uint8 (B, C, H, W)."""
        return (self.images.index_select(0, positions) for positions in batches)

    def take(self, positions: Tensor) -> "Split":
        """The split of these positions alone."""
        return Split(self.images[positions], self.labels[positions])


def check_examples(name: str, given: object) -> None:
    """Refuses an argument, by its name, that does not offer what a split does."""
    if not all(hasattr(given, part) for part in ("labels", "shape", "read", "take", "__len__")):
        raise SanpError(f"{name} is {described(given)}: give a sanp.data.Split")


def check_labels(labels: Tensor, count: int) -> None:
    """Refuses labels that do not fit ``count`` images, or that nothing can be learned from."""
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.ndim != 1:
        raise SanpError(f"labels are {described(labels)}: give an int64 tensor (N,), one class number an image")
    if len(labels) != count:
        raise SanpError(f"{count} images but {len(labels)} labels: give one label an image")
    if count == 0:
        raise SanpError("the split is empty: give at least two images, of two classes")
    if int(labels.min()) < 0:
        raise SanpError(f"a label is {int(labels.min())}: class numbers start at 0")
    if bool((labels == labels[0]).all()):
        raise SanpError(f"all {count} images are of class {int(labels[0])}: give images of at least two classes")


def chunks(positions: Tensor, shape: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """Positions in parts whose images take a few megabytes, so that reading a split of any size takes little memory.

    ``shape`` is that of one image.
    """
    return torch.split(positions, max(1, 2**22 // math.prod(shape)))
