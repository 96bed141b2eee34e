"""How long a run took in all, whatever interrupted it: the seconds stand in its folder and grow with every epoch."""

import math
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType

from sanp.checkpoint import write_atomically
from sanp.errors import SanpError
from sanp.stages import Progress

FILE = "seconds.txt"


class Stopwatch:
    """Watches a run; what a kill threw away since the last epoch is not counted, for it is done again."""

    def __init__(self, folder: Path, watch: Callable[[Progress], None] | None = None) -> None:
        self.folder, self.watch = folder, watch
        self._before = seconds_of(folder)
        self._began = monotonic()

    def __call__(self, progress: Progress) -> None:
        """Takes a step of the run."""
        if progress.epoch_over:
            self._keep()
        if self.watch is not None:
            self.watch(progress)

    def __enter__(self) -> "Stopwatch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.folder.is_dir():
            self._keep()

    def _keep(self) -> None:
        text = f"{self._before + monotonic() - self._began:.3f}\n"

        def write(path: str) -> None:
            Path(path).write_text(text, encoding="utf-8")

        write_atomically(self.folder / FILE, write)


def seconds_of(folder: Path) -> float:
    """The seconds that a run took so far; 0 where nobody counted."""
    path = folder / FILE
    if not path.is_file():
        return 0.0
    try:
        seconds = float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SanpError(f"{path} is damaged ({error}): remove it; the run's time is then counted from there") from error
    if not 0 <= seconds < math.inf:
        raise SanpError(f"{path} says {seconds} seconds: remove it; the run's time is then counted from there")
    return seconds
