"""metrics.jsonl: a line an epoch, the same whether or not the run was interrupted; and TensorBoard events."""

import json
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from sanp.evaluate import Report
from sanp.stages import Progress


class ProgressLog:
    """Writes down how training goes; what an interrupted run wrote after ``state`` was saved is written anew."""

    def __init__(self, folder: Path, state: dict[str, Any]) -> None:
        self.path = folder / "metrics.jsonl"
        self.lines: int = state.get("lines", 0)
        self._steps: int = state.get("steps", 0)
        self._loss: float = state.get("loss", 0.0)
        self._right: float = state.get("right", 0.0)
        self._board: Any = None
        self._folder = folder

    def state(self) -> dict[str, Any]:
        """How many epochs are written, and the sums of the one that is running."""
        return {"lines": self.lines, "steps": self._steps, "loss": self._loss, "right": self._right}

    def __enter__(self) -> "ProgressLog":
        kept = self.path.read_text(encoding="utf-8").splitlines(keepends=True)[: self.lines] if self.lines else []
        self.path.write_text("".join(kept), encoding="utf-8")
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter  # an extra

            self._board = SummaryWriter(str(self._folder / "tensorboard"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._board is not None:
            self._board.close()

    def step(self, progress: Progress) -> None:
        """Adds a step to the epoch's means."""
        self._loss += progress.loss
        self._right += progress.accuracy or 0.0
        self._steps += 1

    def epoch(self, progress: Progress, test: Report | None) -> None:
        """Writes the line of an epoch that is over."""
        line = {
            "stage": progress.stage,
            "epoch": progress.epoch,
            "step": progress.step,
            "loss": self._loss / self._steps,
            "accuracy": None if progress.accuracy is None else self._right / self._steps,
            "cost": progress.cost,
            "target": progress.target,
            "cost_weight": progress.cost_weight,
            "test_accuracy": None if test is None else test.accuracy,
            "test_kept": None if test is None else test.kept,
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.lines += 1
        self._steps, self._loss, self._right = 0, 0.0, 0.0
        for name, value in line.items():
            if self._board is not None and isinstance(value, float):
                self._board.add_scalar(f"{progress.stage}/{name}", value, progress.step)
