"""Files that a crash cannot damage: written beside the target, then renamed over it; and a lock on a folder."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from sanp.core.errors import SanpError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; a folder in use is an error."""
    try:
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise SanpError(f"cannot write in {folder} ({error.strerror}): choose a folder that can be written") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SanpError(f"{folder} is in use by another run: wait for it, or choose another folder") from error
        yield


_UMASK = os.umask(0o077)  # it can be read only by setting it


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Lets ``write`` fill a temporary file, then puts it in the place of ``path`` in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
    except OSError as error:
        raise SanpError(f"cannot write {path} ({error.strerror}): choose a folder that can be written") from error
    try:
        write(temporary)
        with Path(temporary).open("rb") as file:
            os.fchmod(file.fileno(), 0o666 & ~_UMASK)  # a temporary file can be read by its owner only
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name too
        finally:
            os.close(folder)
    except (OSError, SafetensorError) as error:
        raise SanpError(f"cannot write {path} ({error}): make room or choose another folder") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
