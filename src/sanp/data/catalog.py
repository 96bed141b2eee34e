"""The data sets by name: loading, fetching and listing them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sanp.core.checks import checked_path
from sanp.core.errors import SanpError, unknown_name
from sanp.core.files import cache_folder, expanded
from sanp.data.cifar import CIFAR10, CIFAR100, SIZE, Cifar, read_cifar
from sanp.data.dataset import Dataset
from sanp.data.decode import Resize, check_size
from sanp.data.digits import digits_file, missing_scikit_learn, read_digits
from sanp.data.fetch import FetchProgress, fetch
from sanp.data.imagefolder import MEMORY, read_imagefolder

IMAGEFOLDER = "imagefolder:"


class DatasetLoader(Protocol):
    """Reads a data set, and fetches it first if need be."""

    def __call__(self, root: Path, *, size: int, limit: int | None, progress: FetchProgress | None) -> Dataset:
        """The data set from the data folder ``root``; the arguments are those of :func:`load`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the list of data sets."""

    name: str
    images: int
    """In both splits together."""
    classes: int
    """How many there are."""
    bytes: int
    """On disk where it is here, else what would be fetched."""
    path: Path | None
    """Where it is; None if it is not here."""

    @property
    def here(self) -> bool:
        """Whether it can be used without fetching."""
        return self.path is not None


def _digits(root: Path, *, size: int, limit: int | None, progress: FetchProgress | None) -> Dataset:
    return read_digits(size=size, limit=limit)


def _cifar(kind: Cifar) -> DatasetLoader:
    def load(root: Path, *, size: int, limit: int | None, progress: FetchProgress | None) -> Dataset:
        if size != SIZE:
            raise SanpError(f"size is {size}, but images of {kind.name} are {SIZE}x{SIZE}: leave size out")
        fetch(kind, root, progress)
        return read_cifar(kind, root, limit=limit)

    return load


DATASETS: dict[str, DatasetLoader] = {
    "digits": _digits,
    "cifar10": _cifar(CIFAR10),
    "cifar100": _cifar(CIFAR100),
}
_CIFARS: dict[str, Cifar] = {"cifar10": CIFAR10, "cifar100": CIFAR100}


def load(
    spec: str,
    *,
    root: Path | None = None,
    size: int = SIZE,
    limit: int | None = None,
    memory: int = MEMORY,
    resize: Resize = "crop",
    progress: FetchProgress | None = None,
) -> Dataset:
    """The data set that ``spec`` names: one of :data:`DATASETS`, or ``imagefolder:PATH``.

    It is fetched first if it is not here. ``root`` is the data folder; without it, that is $SANP_DATA, or else the
    user's cache folder. ``size`` is the side of the square images, to which digits and images of a folder are scaled.
    ``limit`` keeps that many training images, the same ones in every run. Images of a folder that take more than
    ``memory`` bytes stay on disk, and ``resize`` says how they become square: crop, pad or stretch. ``progress`` is
    called while something is downloaded.
    """
    check_size(size)
    if (folder := _own_folder(spec)) is not None:
        return read_imagefolder(folder, size=size, limit=limit, memory=memory, resize=resize)
    return _loader(spec)(data_folder(root), size=size, limit=limit, progress=progress)


def get(spec: str, root: Path | None = None, progress: FetchProgress | None = None) -> Path:
    """Fetches the data set if it is not here, and says where it is; the arguments are those of :func:`load`."""
    if (folder := _own_folder(spec)) is not None:
        if not folder.is_dir():
            raise SanpError(
                f"{folder} is not a folder: give one with CLASS/IMAGE files, or train/ and val/ or test/ in it"
            )
        return folder
    loader = _loader(spec)
    if spec in _CIFARS:
        return fetch(_CIFARS[spec], data_folder(root), progress)
    if spec != "digits":
        loader(data_folder(root), size=SIZE, limit=None, progress=progress)  # fetches what it needs into this folder
        return data_folder(root)
    if (file := digits_file()) is None:
        raise missing_scikit_learn()
    return file


def describe(root: Path | None = None) -> list[Entry]:
    """The data sets that have a name, and which of them are in the data folder, ``root`` as in :func:`load`."""
    folder = data_folder(root)
    file = digits_file()
    digits = Entry(name="digits", images=1797, classes=10, bytes=file.stat().st_size if file else 0, path=file)
    return [digits, *(_entry(kind, folder) for kind in _CIFARS.values())]


def data_folder(root: Path | None = None) -> Path:
    """``root`` if given, else $SANP_DATA, else the user's cache folder."""
    if root is not None:
        return checked_path(root)
    if named := os.environ.get("SANP_DATA"):
        return expanded(named)
    return cache_folder()


def _entry(kind: Cifar, root: Path) -> Entry:
    here = kind.is_in(root)
    path = root / kind.folder
    size = sum((path / name).stat().st_size for name in kind.files) if here else kind.archive_bytes
    return Entry(name=kind.name, images=60_000, classes=kind.num_classes, bytes=size, path=path if here else None)


def _own_folder(spec: str) -> Path | None:
    """The folder that ``imagefolder:PATH`` names; None for the name of a data set."""
    if not isinstance(spec, str) or not spec.startswith(IMAGEFOLDER):
        return None
    if spec == IMAGEFOLDER:
        raise SanpError("imagefolder: names no folder: give imagefolder:PATH")
    return checked_path(expanded(spec.removeprefix(IMAGEFOLDER)))


def _loader(spec: str) -> DatasetLoader:
    if not isinstance(spec, str) or spec not in DATASETS:
        raise unknown_name("data set", spec, [*DATASETS, "imagefolder:PATH"])
    return DATASETS[spec]
