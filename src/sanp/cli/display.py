"""What the terminal shows of a run: a line for each stage while it trains, and the tables afterwards."""

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sanp.cli.console import plain
from sanp.evaluation import Report
from sanp.experiments.metrics import read_metrics
from sanp.experiments.run import Finished
from sanp.gating.flops import human
from sanp.training.config import FitConfig
from sanp.training.stage import Progress

FAR = 0.1
"""Share of the dense FLOPs above the budget from which training has left too much to the thresholds."""


class LiveProgress:
    """A line for every stage, kept up to date while it runs; without a terminal, a plain line after each epoch.

    ``config`` has the epochs of the stages; with ``pretrained`` weights the first stage is left out.
    """

    def __init__(self, console: Console, config: FitConfig, pretrained: bool) -> None:
        self.console = console
        self._epochs = {
            "pretrain": 0 if pretrained else config.pretrain_epochs,
            "warm-up": config.warmup_epochs,
            "joint": config.joint_epochs,
        }
        self._latest: dict[str, Progress] = {}
        self._started: dict[str, float] = {}
        self._live = Live(console=console, refresh_per_second=4, transient=False, auto_refresh=console.is_terminal)

    def __enter__(self) -> "LiveProgress":
        if self.console.is_terminal:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.__exit__(kind, error, trace)

    def __call__(self, progress: Progress) -> None:
        """Shows a step."""
        self._started.setdefault(progress.stage, time.monotonic())
        self._latest[progress.stage] = progress
        if self.console.is_terminal:
            self._live.update(self._table())
        elif progress.epoch_over:
            self.console.print("  ".join(self._cells(progress)), soft_wrap=True)

    def _table(self) -> Table:
        table = Table("stage", "epoch", "loss", "accuracy", "cost", "budget", "λ", "time left", box=None)
        for progress in self._latest.values():
            table.add_row(*self._cells(progress))
        return table

    def _cells(self, progress: Progress) -> tuple[str, ...]:
        return (
            plain(progress.stage),
            f"{progress.epoch}/{progress.epochs}",
            f"{progress.loss:.3f}",
            _percent(progress.accuracy),
            _percent(progress.kept),
            _percent(progress.target),
            "" if progress.cost_weight is None else f"{progress.cost_weight:+.2f}",
            _clock(self._seconds_left(progress)),
        )

    def _seconds_left(self, progress: Progress) -> float:
        """The time for the rest of this stage and for the stages to come, if all go at its pace."""
        pace = (time.monotonic() - self._started[progress.stage]) / max(1, progress.step)
        later = [stage for stage in self._epochs if stage not in self._latest]
        steps_per_epoch = progress.steps / max(1, progress.epochs)
        to_come = sum(self._epochs[stage] for stage in later) * steps_per_epoch
        return pace * (progress.steps - progress.step + to_come)


def before_and_after(finished: Finished, budget: str) -> Table:
    """The table at the end of a run: the network before and after pruning."""
    table = Table("", "accuracy", "FLOPs per image", "of dense", title=f"budget {plain(budget)}")
    for name, report in (("before", finished.dense), ("after", finished.pruned)):
        table.add_row(name, f"{report.accuracy:.2%}", human(report.flops), f"{report.kept:.2%}")
    table.caption = left_to_thresholds(finished)
    return table


def left_to_thresholds(finished: Finished) -> str | None:
    """What to tell the user of a run whose training ended far above its budget; None for other runs."""
    epochs = read_metrics(finished.folder)
    cost = epochs[-1]["cost"] if epochs else None
    if cost is None or cost <= finished.pruned.kept + FAR:
        return None
    return (
        f"training ended at {cost:.0%} of the FLOPs and the thresholds closed the rest, which costs accuracy: train "
        "longer, or with a higher fit.spm_lr"
    )


def report_table(report: Report) -> Table:
    """The table of an evaluation, a row for each layer."""
    title = f"accuracy {report.accuracy:.2%}, {human(report.flops)} FLOPs per image, {report.kept:.2%} of dense"
    table = Table("layer", "channels", "kept", "never pruned", "sometimes", "always", "FLOPs", "dense", title=title)
    for layer in report.layers:
        counts = (str(count) for count in (layer.never, layer.sometimes, layer.always))
        flops = (human(layer.flops), human(layer.dense_flops))
        table.add_row(plain(layer.name), str(layer.channels), f"{layer.kept:.1%}", *counts, *flops)
    return table


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
