"""Writes files so that a crash cannot damage them (to a temporary file, then renamed), and locks folders."""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from sanp.core.errors import SanpError


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Replaces the file ``path`` in one step, so that a reader finds either the old content or all of the new.

    ``write`` is called with the name of a temporary file in the same folder, and writes the new content there. The
    folder is made if it does not exist.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Inside, no other process can lock the folder; an error if another process has locked it already.

    The lock ends with the process at the latest.
    """
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
