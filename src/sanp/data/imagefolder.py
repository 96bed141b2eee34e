"""A folder of one's own images: CLASS/ alone, or train/CLASS/ and val/CLASS/ or test/CLASS/."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from sanp.core.errors import SanpError
from sanp.data.augment import Augment
from sanp.data.dataset import Dataset, first_after_shuffle, statistics
from sanp.data.decode import SUFFIXES, Resize, decode
from sanp.data.split import Examples, Split, check_labels, chunks

MEMORY = 4 * 2**30
"""Bytes that the scaled images of both splits may take together in memory; if they take more, they stay on disk."""


TEST_SHARE = 0.2
"""of each class, in a folder that is not split"""


@dataclass(frozen=True, eq=False)
class FileSplit:
    """Images that stay on disk and are decoded by threads shortly before use (Pillow decodes without the GIL).

    ``files`` are their paths. ``workers`` threads decode; at most ``ahead`` batches are decoded and not yet used, so
    memory does not grow with the number of images.
    """

    files: tuple[str, ...]
    labels: Tensor
    """int64 (N,)"""
    size: int
    """the side to which the images are scaled"""
    workers: int = field(default_factory=lambda: min(8, os.cpu_count() or 1))
    ahead: int = 2
    resize: Resize = "crop"
    """how an image becomes square"""

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.files))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return 3, self.size, self.size

    def __len__(self) -> int:
        return len(self.files)

    def read(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """For every tensor of positions in ``batches``, those images as uint8 (B, 3, H, W)."""
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="sanp-decode")
        waiting: deque[tuple[Tensor, list[Future[None]]]] = deque()
        try:
            for positions in batches:
                waiting.append(self._start(pool, positions))
                if len(waiting) > self.ahead:
                    yield _finished(*waiting.popleft())
            while waiting:
                yield _finished(*waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def take(self, positions: Tensor) -> "FileSplit":
        """The split of these positions alone."""
        files = tuple(self.files[position] for position in positions.tolist())
        return FileSplit(files, self.labels[positions], self.size, self.workers, self.ahead, self.resize)

    def in_memory(self) -> Split:
        """The same images, all decoded."""
        images = torch.empty(len(self), *self.shape, dtype=torch.uint8)
        done = 0
        for batch in self.read(chunks(torch.arange(len(self)), self.shape)):
            images[done : done + len(batch)] = batch
            done += len(batch)
        return Split(images, self.labels)

    def _start(self, pool: ThreadPoolExecutor, positions: Tensor) -> tuple[Tensor, list[Future[None]]]:
        images = torch.empty(len(positions), *self.shape, dtype=torch.uint8)
        rows = list(enumerate(positions.tolist()))
        return images, [pool.submit(self._fill, images, rows[k :: self.workers]) for k in range(self.workers)]

    def _fill(self, images: Tensor, rows: list[tuple[int, int]]) -> None:
        for row, position in rows:
            images[row] = torch.from_numpy(decode(Path(self.files[position]), self.size, self.resize).copy())


def read_imagefolder(
    path: Path, *, size: int = 32, limit: int | None = None, memory: int = MEMORY, resize: Resize = "crop"
) -> Dataset:
    """The images under ``path``, made square as ``resize`` says and scaled to ``size`` x ``size``.

    ``limit`` keeps that many training images. Images that take more than ``memory`` bytes stay on disk.
    """
    classes, all_train, all_test, notes = find_splits(path, size=size, resize=resize)
    train: Examples = first_after_shuffle(all_train, limit)
    test: Examples = all_test
    if (len(train) + len(test)) * 3 * size * size <= memory:
        train, test = (split.in_memory() if isinstance(split, FileSplit) else split for split in (train, test))
    mean, std = statistics(train)
    augment = Augment(flip=True, flip_alternates=True, translate=size // 16)
    name, notes = f"imagefolder:{path}", (*notes, _said_of(resize, size))
    return Dataset(
        name=name,
        train=train,
        test=test,
        classes=classes,
        mean=mean,
        std=std,
        augment=augment,
        resize=resize,
        notes=notes,
    )


def find_splits(
    path: Path, *, size: int, resize: Resize = "crop"
) -> tuple[tuple[str, ...], FileSplit, FileSplit, tuple[str, ...]]:
    """The classes under ``path``, the files to train on, those to test on, and what the user should know of the split.

    A folder without test images is split by itself: a fifth of each class is for the test, the same in every run.
    """
    train_folder, test_folder = _folders(path)
    classes = _classes(train_folder)
    train = _files(train_folder, classes, size, resize, every=True)
    if test_folder is None:
        train, test = _divided(train)
        total = len(train) + len(test)
        note = (
            f"{train_folder} has no test images beside it: {len(test)} of its {total} images, a fifth of each class, "
            "the same in every run, are the test images"
        )
        return classes, train, test, (note,)
    if unknown := sorted(set(_classes(test_folder)) - set(classes)):
        raise SanpError(
            f"{test_folder} has classes that {train_folder} lacks ({', '.join(unknown[:5])}): rename or add them"
        )
    return classes, train, _files(test_folder, classes, size, resize), ()


def _divided(files: FileSplit) -> tuple[FileSplit, FileSplit]:
    """Four fifths of each class, and one fifth; at least one image of each class on either side."""
    generator = torch.Generator().manual_seed(0)
    kept: list[Tensor] = []
    held: list[Tensor] = []
    for label in files.labels.unique():
        own = (files.labels == label).nonzero().flatten()
        if len(own) < 2:
            raise SanpError(f"{files.files[int(own[0])]} is the only image of its class: add images to train and test")
        order = own[torch.randperm(len(own), generator=generator)]
        count = max(1, round(TEST_SHARE * len(own)))
        held.append(order[:count])
        kept.append(order[count:])
    return files.take(torch.cat(kept).sort().values), files.take(torch.cat(held).sort().values)


def _said_of(resize: Resize, size: int) -> str:
    how = {
        "crop": "the middle square of each image is kept (--resize pad or stretch keeps all of it)",
        "pad": "all of each image is kept, between grey borders",
        "stretch": "all of each image is kept, distorted to a square",
    }[resize]
    return f"images are scaled to {size}x{size} (--image-size): {how}"


def _finished(images: Tensor, work: list[Future[None]]) -> Tensor:
    for part in work:
        part.result()
    return images


def _folders(path: Path) -> tuple[Path, Path | None]:
    """The folder that holds the classes to train on, and the one to test on; None if there is none."""
    if not path.is_dir():
        raise SanpError(f"{path} is not a folder: give one with CLASS/IMAGE files, or train/ and test/ of them")
    train = path / "train"
    # Where there are both, results are reported on test/. ImageNet's test images have no labels, thus no class folders.
    held_out = [path / name for name in ("test", "val") if (path / name).is_dir()]
    if train.is_dir():
        return train, next((folder for folder in held_out if _classes(folder)), held_out[0] if held_out else None)
    if held_out:
        raise SanpError(f"{path} has no train/: give train/CLASS/ beside {held_out[0].name}/CLASS/")
    return path, None


def _classes(folder: Path) -> tuple[str, ...]:
    return tuple(
        sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    )


def _files(folder: Path, classes: tuple[str, ...], size: int, resize: Resize, *, every: bool = False) -> FileSplit:
    """The images of these classes; with ``every``, each class must have some."""
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        own = sorted(
            str(path) for path in (folder / name).rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
        )
        if every and not own:
            raise SanpError(f"{folder / name} holds no PNG, JPEG or WebP file: add images or remove the folder")
        files += own
        labels += [label] * len(own)
    if not files:
        raise SanpError(f"{folder} holds no class folders with images: give {folder}/CLASS/IMAGE.png")
    if every and len(classes) == 1:
        deeper = f"; if the folders in {folder / classes[0]} are the classes, give that one"
        raise SanpError(
            f"{folder} has one class, {classes[0]}: give a folder of images for each of at least two classes"
            f"{deeper if _classes(folder / classes[0]) else ''}"
        )
    try:
        return FileSplit(tuple(files), torch.tensor(labels, dtype=torch.int64), size, resize=resize)
    except SanpError as error:
        raise SanpError(f"{folder}: {error}") from error
