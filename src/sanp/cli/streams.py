"""The standard streams of a command: closed ones, ones that cannot write every letter, full disks, ended pipes."""

import contextlib
import io
import os
import sys
from pathlib import Path


def prepare_streams() -> None:
    """Lets every text be printed: to nowhere if a stream is closed, and by its code where a letter is not known."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (open to the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_output() -> str | None:
    """Writes what is still held back of the output; why that failed, or None.

    After a failure the stream leads nowhere, since Python would try again at its end and print a traceback.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return None if isinstance(error, BrokenPipeError) else getattr(error, "strerror", None) or str(error)
    return None
