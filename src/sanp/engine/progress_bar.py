"""A progress bar on the terminal for what takes more than two seconds."""

import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_BEFORE_BAR = 2.0
"""seconds before the bar is shown"""


class ProgressBar:
    """Inside, ``update`` says how far the work is; the bar is on stderr, if that is a terminal, and goes at the end."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> "ProgressBar":
        return self

    def update(self, doing: str, share: float) -> None:
        """Shows what is being done, and the share of all the work that is behind it."""
        if self._shown is None:
            if time.perf_counter() - self._start < SECONDS_BEFORE_BAR:
                return
            self._shown = _bar()
        bar, task = self._shown
        bar.update(task, description=doing, completed=share)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown[0].stop()


def _bar() -> "tuple[Progress, TaskID]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar.start()
    return bar, bar.add_task("", total=1.0)
