"""What may lie where a file should be: links to elsewhere, in circles and to devices, pipes and folders."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Place = Callable[[Path, Path], object]
"""Puts something at the first path; the second is a file that nobody may write to."""
PLACES: list[Place] = [
    lambda path, outside: path.symlink_to(outside),
    lambda path, outside: os.link(outside, path),
    lambda path, outside: path.symlink_to(path.parent / "nothing here"),
    lambda path, outside: path.symlink_to(path),
    lambda path, outside: path.symlink_to("/dev/zero"),
    lambda path, outside: path.symlink_to(outside.parent),
    lambda path, outside: os.mkfifo(path),
    lambda path, outside: path.mkdir(),
]


@contextmanager
def in_its_place(path: Path, whole: bytes, dice: random.Random) -> Iterator[None]:
    """Inside, something else lies at ``path``; afterwards the file ``whole``. Fails if a file outside was changed."""
    outside = path.parent.parent / f"outside-{os.getpid()}"
    outside.write_bytes(whole)
    _remove(path)
    dice.choice(PLACES)(path, outside)
    try:
        yield
        assert outside.read_bytes() == whole, "a file outside of the folder was written"
    finally:
        _remove(path)
        path.write_bytes(whole)
        outside.unlink()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
