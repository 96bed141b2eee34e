"""Times of algorithms on disk, with how sure they are: a JSON file for each processor and build of the library.

The files lie in the user's cache folder.

Where a file cannot be read or written, the algorithms are measured again. Writers replace the whole file, so readers
never see half of one; of two writers at a time the choices of one may be lost, and are measured again.
"""

import contextlib
import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from sanp.core.errors import SanpError
from sanp.core.files import cache_folder, expanded, read_text, write_text
from sanp.engine.timing import Timing

_MOST = 20_000
"""entries that a file keeps, the newest"""


def read_timings(library: Path) -> dict[str, Timing]:
    """What is known of the algorithms, by key; nothing if there is no sound file."""
    path = cache_file(library)
    try:
        content = json.loads(read_text(path)) if path is not None else {}
    except (OSError, ValueError, RecursionError):
        return {}
    timings = content.get("timings") if isinstance(content, dict) else None
    if not isinstance(timings, dict):
        return {}
    sound = ((key, Timing.from_json(given)) for key, given in timings.items())
    return {key: timing for key, timing in sound if timing is not None}


def add(library: Path, measured: Mapping[str, Timing]) -> None:
    """Adds timings to the file, and keeps those that others have added since it was last read."""
    path = cache_file(library)
    if path is None or not measured:
        return
    timings = {**read_timings(library), **measured}
    kept = {key: timing.as_json() for key, timing in list(timings.items())[-_MOST:]}
    content = json.dumps({"processor": processor(), "timings": kept})
    with contextlib.suppress(SanpError):  # a folder that cannot be written costs time, not the compilation
        write_text(path, content)


def cache_file(library: Path) -> Path | None:
    """The file for this processor and library; SANP_TUNING may name another folder, or be ``off`` (None)."""
    named = os.environ.get("SANP_TUNING")
    if named == "off":
        return None
    if named:
        folder = expanded(named)
    else:
        try:
            folder = cache_folder() / "tuning"
        except SanpError:  # no home folder: what is measured is not kept
            return None
    key = hashlib.sha256(f"{processor()}\n{_build(str(library))}".encode()).hexdigest()
    return folder / f"{key[:16]}.json"


@functools.cache
def processor() -> str:
    """The processor's name, family, model and stepping."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return platform.processor() or platform.machine()
    wanted = ("model name", "cpu family", "model", "stepping")
    found = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)  # the first processor's lines win
    named = [value.strip() for key, value in found.items() if key.strip() in wanted]
    return ", ".join(sorted(named)) or platform.machine()


@functools.cache
def _build(library: str) -> str:
    """What tells one build of the library from another."""
    return hashlib.sha256(Path(library).read_bytes()).hexdigest()
