"""What is shown while a network trains: a table kept up to date in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar

from sanp.core.checks import is_installed
from sanp.training.history import share_text
from sanp.training.stage import Progress

T = TypeVar("T")
COLUMNS = ("stage", "epoch", "loss", "accuracy", "cost", "budget", "λ", "test", "time left")
COLUMN_WIDTHS = (9, 8, 8, 8, 7, 7, 7, 7, 9)
"""of a plain line, 79 characters in all"""
WHAT_FOLLOWS = "batch norm statistics and thresholds ..."


class Display:
    """A line for every stage, kept up to date while it runs; without a terminal, a plain line after each epoch.

    ``epochs`` are the stages to come with their epochs, which the time left is estimated from. ``finish`` is how long
    the time after the last stage is, in steps. ``console`` is rich's; without one it is stderr. ``tested`` adds a
    column for the accuracy on the test images, or with ``held_out`` on the held-out ones.
    """

    def __init__(
        self,
        epochs: Mapping[str, int],
        *,
        finish: float = 0.0,
        console: Any = None,
        tested: bool = False,
        held_out: bool = False,
    ) -> None:
        self.epochs, self.finish, self.tested = epochs, finish, tested
        self._columns = tuple("heldout" if held_out and name == "test" else name for name in COLUMNS)
        self._console = console if console is not None else _stderr()
        self._latest: dict[str, Progress] = {}
        self._started: dict[str, float] = {}
        self._test: dict[str, float] = {}
        self._held = ExitStack()
        self._live: Any = None
        self._headed = False

    def __enter__(self) -> "Display":
        if self._console is not None and self._console.is_terminal and not self._console.is_jupyter:
            from rich.live import Live

            self._live = self._held.enter_context(Live(console=self._console, refresh_per_second=4))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def __call__(self, progress: Progress) -> None:
        """Shows a step."""
        self._started.setdefault(progress.stage, time.monotonic())
        self._latest[progress.stage] = progress
        if progress.test_accuracy is not None:
            self._test[progress.stage] = progress.test_accuracy
        if self._live is not None:
            self._live.update(self._table())
        elif progress.epoch_over:
            if not self._headed:
                self._write(self._line(self._columns))
                self._headed = True
            self._write(self._line(self._cells(progress)))
            if self._over(progress):
                self._write(WHAT_FOLLOWS)

    def _over(self, progress: Progress) -> bool:
        """Whether this was the last step of all, after which norms and thresholds are still to be set."""
        last = progress.stage == list(self.epochs)[-1] if self.epochs else False
        return bool(self.finish) and last and progress.step == progress.steps

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(*self._shown(self._columns), box=None)
        for progress in self._latest.values():
            table.add_row(*self._shown(self._cells(progress)))
        if self._over(progress):
            table.caption = WHAT_FOLLOWS
        return table

    def _shown(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        return cells if self.tested else (*cells[:7], *cells[8:])

    def _line(self, cells: tuple[str, ...]) -> str:
        stage, *others = zip(cells, COLUMN_WIDTHS, strict=True)
        shown = [others[i] for i in range(len(others)) if self.tested or i != 6]
        return f"{stage[0]:<{stage[1]}} " + " ".join(f"{cell:>{width}}" for cell, width in shown)

    def _cells(self, progress: Progress) -> tuple[str, ...]:
        return (
            "".join(each if each.isprintable() else "?" for each in progress.stage),
            f"{progress.epoch}/{progress.epochs}",
            f"{progress.loss:.3f}",
            share_text(progress.accuracy),
            share_text(progress.kept),
            share_text(progress.target),
            "" if progress.cost_weight is None else f"{progress.cost_weight:+.2f}",
            share_text(self._test.get(progress.stage)),
            clock(self._seconds_left(progress)),
        )

    def _seconds_left(self, progress: Progress) -> float:
        """The time for the rest of this stage, for the stages to come and for what follows, all at its pace."""
        pace = (time.monotonic() - self._started[progress.stage]) / max(1, progress.step)
        names = list(self.epochs)
        later = names[names.index(progress.stage) + 1 :] if progress.stage in names else []
        steps_per_epoch = progress.steps / max(1, progress.epochs)
        to_come = sum(self.epochs[stage] for stage in later) * steps_per_epoch
        return pace * (progress.steps - progress.step + to_come + self.finish)

    def _write(self, line: str) -> None:
        if self._console is not None:
            self._console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)
        else:
            sys.stderr.write(line + "\n")


def counted(batches: Iterable[T], what: str) -> Iterator[T]:
    """The batches, with a line in the terminal that says how far they are; it comes after a second, and goes."""
    began, shown = time.monotonic(), ""
    total = len(batches) if isinstance(batches, Sized) else None
    terminal = sys.stderr.isatty()
    for number, batch in enumerate(batches):
        yield batch
        spent = time.monotonic() - began
        if terminal and spent > 1:
            left = "" if total is None else f" of {total}, {clock(spent / (number + 1) * (total - number - 1))} left"
            line = f"{what}: batch {number + 1}{left}"
            sys.stderr.write("\r" + line.ljust(len(shown)))
            shown = line
    if shown:
        sys.stderr.write("\r" + " " * len(shown) + "\r")


def clock(seconds: float) -> str:
    """A time as 1:02:03 or 2:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _stderr() -> Any:
    """rich's console of stderr; None if rich is not installed."""
    if not is_installed("rich"):
        return None
    from rich.console import Console

    return Console(stderr=True)
