"""Files that a crash cannot damage: written beside the target, then renamed over it; and a lock on a folder."""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from sanp.core.errors import SanpError


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Lets ``write`` fill a temporary file, given by its name, then puts that in the place of ``path`` in one step."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # less what the umask takes
        mode = temporary.stat().st_mode & 0o777
    except OSError as error:
        raise SanpError(f"cannot write {path} ({error.strerror}): choose a folder that can be written") from error
    try:
        write(str(temporary))
        with temporary.open("rb") as file:
            os.fchmod(file.fileno(), mode)  # some writers replace the file with one for its owner only
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name too
        finally:
            os.close(folder)
    except (OSError, SafetensorError) as error:
        raise SanpError(f"cannot write {path} ({error}): make room or choose another folder") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder for this process, and lets it go when the process ends; a folder in use is an error."""
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
