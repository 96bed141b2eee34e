"""scikit-learn's handwritten digits (Alpaydin and Kaynak 1998): 1,797 real images that come with that package."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sanp.core.errors import SanpError
from sanp.core.limits import LARGEST_DIGITS_SIDE
from sanp.data.augment import Augment
from sanp.data.dataset import Dataset, first_after_shuffle, statistics
from sanp.data.split import Split

DARKEST = 16
"""The largest value of a pixel; the smallest is 0."""


def read_digits(*, size: int = 32, limit: int | None = None) -> Dataset:
    """The digits scaled to ``size`` x ``size``, in three equal channels: 1,437 to train on and 360 to test on.

    ``limit`` keeps that many of the training images.
    """
    if size > LARGEST_DIGITS_SIDE:
        raise SanpError(f"size is {size}, and digits have 8x8 pixels: give at most {LARGEST_DIGITS_SIDE}")
    images, labels = _load()  # (1797, 8, 8), (1797,)
    pixels = torch.cat([_scaled(part, size) for part in images.split(200)]).expand(-1, 3, -1, -1)
    # Every fifth image in the order of the classes: a fixed split with a fifth of each class, to within one image.
    by_class = labels.argsort(stable=True)
    is_test = torch.arange(len(labels)) % 5 == 0
    splits = [Split(pixels[chosen], labels[chosen]) for chosen in (by_class[~is_test], by_class[is_test])]
    train, test = first_after_shuffle(splits[0], limit), splits[1]
    mean, std = statistics(train)
    # No flip: a mirrored digit is another sign. A shift of a sixteenth keeps every stroke inside.
    augment = Augment(translate=size // 16)
    classes = tuple(str(digit) for digit in range(10))
    return Dataset(name="digits", train=train, test=test, classes=classes, mean=mean, std=std, augment=augment)


def _scaled(images: Tensor, size: int) -> Tensor:
    """Some of the images (N, 8, 8) as bytes (N, 1, size, size)."""
    large = interpolate(images[:, None] / DARKEST, (size, size), mode="bilinear", align_corners=False)
    return (large * 255).round().to(torch.uint8)


def digits_file() -> Path | None:
    """Where scikit-learn keeps the digits; None if it is not installed. This does not import scikit-learn."""
    from importlib.util import find_spec

    found = find_spec("sklearn")
    places = found.submodule_search_locations if found is not None else None
    return Path(next(iter(places))) / "datasets" / "data" / "digits.csv.gz" if places else None


def missing_scikit_learn() -> SanpError:
    """The error for digits without the package that holds them."""
    return SanpError("digits come with scikit-learn, which is not installed: pip install 'sanp[digits]'")


def _load() -> tuple[Tensor, Tensor]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise missing_scikit_learn() from error
    found = load_digits()
    return torch.from_numpy(found.images.astype(np.float32)), torch.from_numpy(found.target.astype(np.int64))
