"""How a run went: metrics.jsonl with a line for each epoch, TensorBoard events, and seconds.txt with the time.

metrics.jsonl is the same whether or not the run was interrupted.
"""

import json
import math
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from sanp.core.checks import is_finite, is_installed
from sanp.core.errors import SanpError, shown
from sanp.core.files import append_line, own_folder, read_text, write_text
from sanp.core.limits import LONGEST_LABEL, MOST_EPOCHS, MOST_STAGES
from sanp.evaluation import Report
from sanp.training.stage import Progress, Watch

METRICS_FILE = "metrics.jsonl"


class ProgressLog:
    """Writes metrics.jsonl and TensorBoard events into ``folder``.

    ``state`` is a saved state, or empty at the start of a run; lines that an interrupted run wrote after it was saved
    are removed and written again. With ``silent`` nothing is written, since another process of the run writes.
    """

    def __init__(self, folder: Path, state: dict[str, Any], *, silent: bool = False) -> None:
        self.path = folder / METRICS_FILE
        self.lines = int(_number(state, "lines"))
        self._steps = int(_number(state, "steps"))
        self._loss = _number(state, "loss")
        self._right = _number(state, "right")
        self._board: Any = None
        self._folder = folder
        self._silent = silent
        """writes nothing, since another process of the run does"""

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint keeps: the number of lines, and the sums of the present epoch."""
        return {"lines": self.lines, "steps": self._steps, "loss": self._loss, "right": self._right}

    def open(self) -> None:
        """Prepares the files: removes the lines of epochs that will be run again."""
        if self._silent:
            return
        kept = _lines(self.path)[: self.lines] if self.lines else []
        if len(kept) < self.lines:
            raise SanpError(f"{self.path} has {len(kept)} lines, but {self.lines} epochs are done: start the run anew")
        # Not in place: if the process were killed between emptying and filling the file, all lines would be lost.
        write_text(self.path, "".join(kept))
        if is_installed("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter  # an optional package

            self._board = SummaryWriter(str(own_folder(self._folder, "tensorboard")))

    def __enter__(self) -> "ProgressLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._board is not None:
            self._board.close()

    def step(self, progress: Progress) -> None:
        """Adds a step to the means of the present epoch."""
        self._loss += progress.loss
        self._right += progress.accuracy or 0.0
        self._steps += 1

    def epoch(self, progress: Progress, found: Report | None, *, held_out: bool = False) -> None:
        """Writes the line of an epoch that is over.

        ``found`` is its evaluation, if there was one: on the ``held_out`` images or on the test images.
        """
        where = "held_out" if held_out else "test"
        line = {
            "stage": progress.stage,
            "epoch": progress.epoch,
            "step": progress.step,
            "loss": self._loss / self._steps,
            "accuracy": None if progress.accuracy is None else self._right / self._steps,
            "cost": progress.kept,
            "target": progress.target,
            "cost_weight": progress.cost_weight,
            f"{where}_accuracy": None if found is None else found.accuracy,
            f"{where}_kept": None if found is None else found.kept,
        }
        append_line(self.path, json.dumps(line))  # on the disk before the state with this line count is saved
        for name, value in line.items():
            if self._board is not None and isinstance(value, float):
                self._board.add_scalar(f"{progress.stage}/{name}", value, progress.step)
        self.lines += 1
        self._steps, self._loss, self._right = 0, 0.0, 0.0


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl in a run folder, one for each epoch; none if the run has not begun."""
    path = folder / METRICS_FILE
    found: list[dict[str, Any]] = []
    lines = _lines(path) if path.exists() else []
    if len(lines) > MOST_EPOCHS:
        raise SanpError(f"{path} has {len(lines)} lines, and at most {MOST_EPOCHS} epochs are read: run it anew")
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
            if not isinstance(line, dict) or not isinstance(line.get("stage"), str):
                raise ValueError("no stage is named")
            if len(line["stage"]) > LONGEST_LABEL:
                raise ValueError(f"a stage's name has {len(line['stage'])} letters")
            if not all(name == "stage" or value is None or _is_number(value) for name, value in line.items()):
                raise ValueError("a value is no number")
        except (ValueError, RecursionError) as error:
            raise SanpError(f"{path}, line {number} is not what a run writes ({error}): run it anew") from error
        found.append(line)
    if len(stages := {line["stage"] for line in found}) > MOST_STAGES:
        raise SanpError(f"{path} names {len(stages)} stages, and no method has more than {MOST_STAGES}: run it anew")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)


def _lines(path: Path) -> list[str]:
    try:
        return read_text(path).splitlines(keepends=True)
    except (OSError, ValueError) as error:
        raise SanpError(f"{path} cannot be read ({error}): start the run anew") from error


def _number(state: dict[str, Any], name: str) -> float:
    value = state.get(name, 0)
    if not _is_number(value) or (name in ("lines", "steps") and (value < 0 or value != int(value))):
        raise SanpError(f"the saved log's {name} is {shown(value)}: the state is damaged, start the run anew")
    return float(value)


SECONDS_FILE = "seconds.txt"


class Stopwatch:
    """Measures the time of a run, over all its interruptions, and writes it to seconds.txt after each epoch.

    Time after the last full epoch of a killed process is not counted, since that work is done again. Steps are passed
    on to ``watch``.
    """

    def __init__(self, folder: Path, watch: Watch | None = None) -> None:
        self.folder, self.watch = folder, watch
        self._before = seconds_of(folder)
        self._began = monotonic()

    def __call__(self, progress: Progress) -> None:
        """Call this after each step of the run."""
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
        write_text(self.folder / SECONDS_FILE, f"{self._before + monotonic() - self._began:.3f}\n")


def seconds_of(folder: Path) -> float:
    """The seconds that a run has taken so far, from its seconds.txt; 0 if there is none."""
    path = folder / SECONDS_FILE
    if not path.is_file():
        return 0.0
    try:
        seconds = float(read_text(path))
    except (OSError, ValueError) as error:
        raise SanpError(f"{path} is damaged ({error}): remove it; the run's time is then counted from there") from error
    if not 0 <= seconds < math.inf:
        raise SanpError(f"{path} says {seconds} seconds: remove it; the run's time is then counted from there")
    return seconds
