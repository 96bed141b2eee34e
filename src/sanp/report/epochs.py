"""A run's metrics.jsonl as epochs, their steps counted through all stages."""

from dataclasses import dataclass
from pathlib import Path

from sanp.core.errors import SanpError
from sanp.core.limits import LARGEST_COUNT
from sanp.experiments.metrics import read_metrics

MEASURED = "accuracy test_accuracy held_out_accuracy target test_kept held_out_kept cost_weight".split()


@dataclass(frozen=True, kw_only=True)
class EpochLine:
    """A line of metrics.jsonl; what is kept is a share of the dense FLOPs, and None is what was not measured."""

    stage: str
    step: int
    """steps since the beginning of the run"""
    accuracy: float | None
    test_accuracy: float | None
    held_out_accuracy: float | None = None
    kept: float | None
    """in training, as a running mean; the file calls it cost"""
    target: float | None
    test_kept: float | None
    held_out_kept: float | None = None
    cost_weight: float | None


def read_epochs(folder: Path) -> tuple[EpochLine, ...]:
    """The epochs of the run in a folder; none if it has no metrics.jsonl."""
    found: list[EpochLine] = []
    before = latest = 0  # steps of the stages that are over, and of the last line
    for number, line in enumerate(read_metrics(folder), 1):
        stage, step = line["stage"], line.get("step")
        if not isinstance(step, int) or not 0 <= step <= LARGEST_COUNT:
            raise SanpError(f"line {number} of {folder}'s metrics.jsonl has step {step!r}: run it anew")
        if found and (stage != found[-1].stage or step <= latest):
            before = found[-1].step
        latest = step
        measured = {name: line.get(name) for name in MEASURED}
        found.append(EpochLine(stage=stage, step=before + step, kept=line.get("cost"), **measured))
    return tuple(found)
