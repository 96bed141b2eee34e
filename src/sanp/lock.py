"""One run a folder: a lock that ends with the process that holds it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sanp.errors import SanpError


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
