"""Reads, writes and locks files that may be anything: links, pipes, devices, too large, or damaged by a crash."""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from safetensors import SafetensorError, safe_open

from sanp.core.errors import SanpError
from sanp.core.limits import LARGEST_HEADER, LARGEST_TENSOR_FILE, LARGEST_TEXT

if TYPE_CHECKING:  # torch takes a second to load
    from torch import Tensor


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Replaces the file ``path`` in one step, so that a reader finds either the old content or all of the new.

    ``write`` is called with the name of a temporary file in the same folder, and writes the new content there. The
    folder is made if it does not exist. A link or another thing that is no ordinary file is not replaced.
    """
    temporary = path.parent / f".{path.name}.{os.urandom(4).hex()}"
    try:
        check_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # the umask applies
        mode = temporary.stat().st_mode & 0o777
    except OSError as error:
        raise SanpError(f"cannot write {path} ({error.strerror}): choose a folder that can be written") from error
    try:
        write(str(temporary))
        with temporary.open("rb") as file:
            os.fchmod(file.fileno(), mode)  # some writers make a new file that only its owner may read
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that the new name is on the disk too
        finally:
            os.close(folder)
    except (OSError, SafetensorError) as error:
        raise SanpError(f"cannot write {path} ({error}): make room or choose another folder") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file as :func:`write_atomically` does."""
    write_atomically(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))


def check_replaceable(path: Path) -> None:
    """Raises an error if there is something at ``path`` that is no ordinary file; links are not followed."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        raise SanpError(f"{path} is {_kind(mode)}, not an ordinary file: remove it, or choose another name")


def own_folder(folder: Path, name: str) -> Path:
    """The folder ``name`` inside ``folder``; an error if it is a link or no folder. It need not exist."""
    path = folder / name
    try:
        mode = path.lstat().st_mode
    except OSError:
        return path
    if not stat.S_ISDIR(mode):
        raise SanpError(f"{path} is {_kind(mode)}, not a folder of this run: remove it")
    return path


def append_line(path: Path, line: str) -> None:
    """Adds a line to an ordinary file and waits until it is on the disk; the file is made if it does not exist."""
    try:
        with os.fdopen(_open_own(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SanpError(f"cannot write {path} ({error.strerror}): make room or choose another folder") from error


def _open_own(path: Path, flags: int) -> int:
    """Opens an ordinary file without following a link and without waiting for the other end of a pipe."""
    number = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        raise OSError(errno.EINVAL, f"it is {_kind(mode)}, not an ordinary file")
    return number


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(mode), "a device or socket")


def read_text(path: Path) -> str:
    """The text of an ordinary file; an OSError for anything else, a ValueError if it is too large or not UTF-8."""
    return read_bytes(path, LARGEST_TEXT).decode("utf-8")


def read_bytes(path: Path, most: int) -> bytes:
    """The content of an ordinary file; an OSError for anything else, an error if it has more than ``most`` bytes."""
    with _opened(path, most) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def check_tensor_file(path: Path, most: int = LARGEST_TENSOR_FILE) -> None:
    """Raises an error if a safetensors file is no ordinary file, has more than ``most`` bytes, or a huge header."""
    with _opened(path, most) as file:
        size = int.from_bytes(file.read(8), "little")
    if size > LARGEST_HEADER:
        raise SanpError(f"its header has {size} bytes, more than {LARGEST_HEADER}: too many tensors")


@contextmanager
def _opened(path: Path, most: int) -> Iterator[BinaryIO]:
    """An ordinary file of at most ``most`` bytes, opened for reading; the errors are those of :func:`read_bytes`."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would wait for ever
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"it is {_kind(status.st_mode)}, not an ordinary file")
        if status.st_size > most:
            raise SanpError(f"{path} has {status.st_size} bytes, more than {most}: no file of this kind is so large")
        yield file


def read_tensor_file(path: Path) -> "tuple[dict[str, str], dict[str, Tensor]]":
    """The metadata and all tensors of a safetensors file; the errors are those of :func:`check_tensor_file` and of
    safetensors."""
    check_tensor_file(path)
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)


def expanded(text: str) -> Path:
    """The path that ``text`` names, with ``~`` replaced by a home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise SanpError(f"{text} begins with the name of a user that is not known here: give the whole path") from error


def cache_folder() -> Path:
    """The user's cache folder of sanp; an error where there is no home folder, since ``~`` would be a folder here."""
    import pooch  # type: ignore[import-untyped]

    folder = Path(pooch.os_cache("sanp"))
    if not folder.is_absolute():
        raise SanpError("there is no home folder here: name a folder for data by SANP_DATA, or set HOME")
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Inside, no other process can lock the folder; an error if another process has locked it already.

    The lock ends with the process at the latest.
    """
    path = folder / ".lock"
    try:
        number = _open_own(path, os.O_RDWR)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENXIO):
            raise SanpError(f"{path} is a link or another thing that is no ordinary file: remove it") from error
        raise SanpError(f"cannot write in {folder} ({error.strerror}): choose a folder that can be written") from error
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SanpError(f"{folder} is in use by another run: wait for it, or choose another folder") from error
        yield
    finally:
        os.close(number)
