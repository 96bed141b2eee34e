"""A data set: images to train on and to test on, the names of the classes, and how its images are normalised."""

from dataclasses import dataclass

import torch

from sanp.core.checks import check_kind, is_whole
from sanp.core.errors import SanpError
from sanp.data.augment import Augment
from sanp.data.decode import Resize
from sanp.data.split import Examples, Split, check_examples, chunks

SAMPLE = 8192
"""Images that the statistics of a split on disk are taken from; more would change mean and deviation by too little."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Images to train on and to test on.

    ``mean`` and ``std`` are those of each channel of the training images, as values in [0, 1].
    """

    name: str
    """As it is loaded by: cifar10, imagefolder:PATH."""
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    """The names of the classes, in the order of the labels."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: Augment
    """The changes that suit these images: digits must not be mirrored."""
    resize: Resize = "crop"
    """How images that are not square become it, for those that are read later."""
    notes: tuple[str, ...] = ()
    """What the user should know before training: how the images were split and resized."""
    held_out: Examples | None = None
    """Training images that are kept apart, to choose settings by; None if there are none."""

    def __post_init__(self) -> None:
        check_examples("train", self.train)
        check_examples("test", self.test)
        check_kind("augment", self.augment, Augment, "a sanp.data.Augment")
        check_kind("classes", self.classes, tuple | list, "a name a class")
        if self.train.shape != self.test.shape:
            raise SanpError(
                f"{self.name}: training images are {self.train.shape}, test images {self.test.shape}: "
                "give both the same shape"
            )
        if self.held_out is not None:
            check_examples("held_out", self.held_out)
        for split in (self.train, self.test, *([] if self.held_out is None else [self.held_out])):
            highest = int(split.labels.max())
            if highest >= len(self.classes):
                raise SanpError(
                    f"{self.name}: a label is {highest}, but there are {len(self.classes)} classes: "
                    f"labels go from 0 to {len(self.classes) - 1}"
                )

    @property
    def channels(self) -> int:
        """Channels of an image: 1 or 3."""
        return self.train.shape[0]

    @property
    def image_size(self) -> int:
        """The side of an image, in pixels."""
        return self.train.shape[1]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)


def first_after_shuffle(split: Examples, limit: int | None) -> Examples:
    """The first ``limit`` images in one fixed random order, the same ones in every run; None keeps all."""
    if limit is None:
        return split
    if not is_whole(limit, 1):
        raise SanpError(f"limit is {limit!r}: give how many training images to keep, or nothing for all")
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    return split.take(order[:limit])


def statistics(split: Examples) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, as values in [0, 1]; of images on disk, at most SAMPLE are read."""
    positions = torch.arange(len(split))
    if not isinstance(split, Split) and len(split) > SAMPLE:
        positions = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[:SAMPLE]
    counts = torch.zeros(split.shape[0], 256, dtype=torch.int64)  # how often each channel has each value
    for images in split.read(chunks(positions, split.shape)):
        counts += torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)])
    shares = counts.double() / counts.sum(1, keepdim=True)  # (C, 256)
    values = torch.arange(256) / torch.tensor(255.0, dtype=torch.float64)
    mean = shares @ values  # (C,)
    variance = (shares * (values - mean[:, None]).square()).sum(1)
    # A channel without any contrast is left as it is, not divided by 0.
    std = variance.sqrt().clamp(min=1 / 255)
    return tuple(mean.tolist()), tuple(std.tolist())
