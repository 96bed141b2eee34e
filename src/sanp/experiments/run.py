"""A run: carries out one recipe in a folder, and can be resumed after any interruption. The folder holds:

config.toml         the recipe, with all settings
metrics.jsonl       a line for each epoch
dense.safetensors   the network before pruning
report.json         the evaluation of the pruned network, and of the dense one under ``dense``
model.safetensors   the pruned network, written last
latency.json        for a budget that is a time, what shares of the FLOPs take on this machine
state/              the state of training, removed when the run is finished
"""

import copy
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from sanp.checkpoint import save
from sanp.core import distributed
from sanp.core.devices import chosen_device
from sanp.core.distributed import by_first
from sanp.core.errors import SanpError, Stopped
from sanp.core.files import locked, own_folder
from sanp.evaluation import Report
from sanp.experiments.measured import Measured, finally_measured, measure
from sanp.experiments.metrics import ProgressLog
from sanp.experiments.recipe import Recipe
from sanp.experiments.run_folder import (
    CONFIG,
    DENSE,
    MODEL,
    check_sight,
    is_finished,
    prepare_folder,
    read_report,
    read_run,
    write_report,
)
from sanp.experiments.starting_point import draw_unused, starting_point
from sanp.experiments.state import Interrupted, Position, Saved
from sanp.experiments.timing import time_runs
from sanp.experiments.training_batches import Tell
from sanp.gating.network import GatedNetwork
from sanp.training.malloc import keep_freed_memory
from sanp.training.nonfinite import NotFinite, bad_parameter
from sanp.training.stage import Progress, Stage, Stages, Watch, drive
from sanp.training.three_stages import pretrain_stage


@dataclass(frozen=True)
class Finished:
    """A finished run: its folder, and the evaluation of the dense and of the pruned network."""

    folder: Path
    dense: Report
    pruned: Report


def train(
    recipe: Recipe, folder: Path, *, watch: Watch | None = None, tell: Tell = lambda line: None, resume: bool = False
) -> Finished:
    """Carries out a recipe in ``folder``: pretrains or loads the network, prunes it, evaluates it, writes all files.

    ``watch`` is called after every step, ``tell`` with each line that the user should read. ``resume`` goes on with the
    run that is in the folder. If torchrun started several processes, each must call this; process 0 writes.
    """
    chosen_device(recipe.device)  # before anything is written
    with ExitStack() as held, distributed.lost_rank_explained(f"go on with sanp train --resume {folder}"):
        by_first(lambda: prepare_folder(recipe, folder, resume))
        by_first(lambda: held.enter_context(locked(folder)))
        check_sight(folder)
        return _Run(recipe, folder, watch, tell).carry_out()


class _Run:
    """One run in progress."""

    def __init__(self, recipe: Recipe, folder: Path, watch: Watch | None, tell: Tell) -> None:
        self.recipe, self.folder, self.watch, self.tell = recipe, folder, watch, tell
        keep_freed_memory()
        start = starting_point(recipe, folder, tell)
        self.data, self.net, self.task, self.times = start.data, start.net, start.task, start.times
        self.dense: Report | None = None
        self._tested: float | None = None
        """accuracy on the test images after the last epoch"""
        self.saved = Saved(own_folder(folder, "state"))

    def carry_out(self) -> Finished:
        """Runs all stages, evaluates the pruned network and writes the results."""
        self.recipe.pruning_method().check(self.net, self.task)
        draw_unused(self.net, self.task)
        pruned = self._drive(self._stages())
        assert self.dense is not None
        if self.times is not None and isinstance(pruned, GatedNetwork):
            self.times.settle(pruned)
        found = finally_measured(pruned, self.dense, self.data, self.recipe.backbone, self.folder)
        by_first(lambda: self._write(pruned, found))
        if self.times is not None:
            by_first(self._time)
        return Finished(self.folder, found.dense, found.pruned)

    def _write(self, pruned: nn.Module, found: Measured) -> None:
        """Writes the results; the network is written last, since its presence marks a finished run."""
        write_report(self.folder, found.as_dict())
        save(pruned, self.folder / MODEL)
        self.saved.clear()

    def _time(self) -> None:
        """Times the finished network for its report, and says what was found."""
        time_runs([self.folder])
        seconds = read_report(self.folder).get("seconds_per_image")
        if seconds is not None:
            taken = f"{1e3 * seconds:.3g} ms an image in the engine, one thread"
            self.tell(f"measured: {taken}; asked for {self.recipe.budget}")

    def _stages(self) -> Stages:
        """Pretraining, unless a pretrained network was given, then the stages of the method."""
        if self.recipe.pretrained is None and self.recipe.fit.pretrain_epochs:
            yield pretrain_stage(self.net, self.task)
        self.dense = measure(self.net, self.data)
        by_first(lambda: save(self.net, self.folder / DENSE))
        pruned = yield from self.recipe.pruning_method().stages(self.net, self.task)
        return pruned

    def _drive(self, stages: Stages) -> nn.Module:
        """Runs the stages from the saved position on; saves after every epoch and when asked to stop."""
        position = self.saved.position()
        log = ProgressLog(self.folder, position.log, silent=distributed.rank() > 0)
        with log, Interrupted() as interrupted:
            by_first(log.open)

            def run(number: int, stage: Stage) -> None:
                if number < position.stage:
                    self.saved.load_end(stage, number)
                    return
                if number == position.stage:
                    self.saved.restore(stage)
                try:
                    self._run_stage(stage, number, log, interrupted)
                except NotFinite as error:
                    raise NotFinite(f"{error}. {self._kept()}") from error

            return drive(stages, run)

    def _run_stage(self, stage: Stage, number: int, log: ProgressLog, interrupted: Interrupted) -> None:
        for progress in stage.run():
            log.step(progress)
            if progress.epoch_over:
                self._keep(stage, number, log, progress)
            if self.watch is not None:
                self.watch(replace(progress, test_accuracy=self._tested if progress.epoch_over else None))
            if distributed.any_rank(interrupted.asked):
                if not progress.epoch_over:
                    self._keep(stage, number, log, progress)
                raise Stopped(f"stopped: go on with sanp train --resume {self.folder}")
        by_first(lambda: self.saved.write_end(stage, number))

    def _keep(self, stage: Stage, number: int, log: ProgressLog, progress: Progress) -> None:
        """Saves the state of the run, and at the end of an epoch writes its metrics; the first process does it."""
        if (name := bad_parameter(stage.net)) is not None:
            raise NotFinite(f"{name} is not finite after step {progress.step} of stage {stage.name}: lower lr")

        def write() -> None:
            if progress.epoch_over:
                test = self._test(stage.net, progress)
                self._tested = None if test is None else test.accuracy
                log.epoch(progress, test, held_out=self.data.held_out is not None)
            self.saved.write(stage, Position(number, log.state()))

        by_first(write)

    def _kept(self) -> str:
        """Says how to resume a run that failed, and from where."""
        start = f"where {self.saved.now} was saved" if self.saved.now.exists() else "at the start"
        return f"Change {self.folder / CONFIG}, then sanp train --resume {self.folder} goes on {start}"

    def _test(self, net: nn.Module, progress: Progress) -> Report | None:
        every = self.recipe.test_every
        if every == 0 or progress.epoch % every:
            return None
        # A copy, since evaluation changes the memory layout of parameters, and training must not depend on testing.
        return measure(copy.deepcopy(net), self.data)


def resumed(
    folder: Path, *, watch: Watch | None = None, tell: Tell = lambda line: None, threads: int | None = None
) -> Finished:
    """Resumes the interrupted run in ``folder`` and runs it to its end.

    ``watch`` is called after every step, ``tell`` with each line that the user should read; ``threads`` replaces the
    number of threads in the recipe.
    """
    recipe = read_run(folder)
    if is_finished(folder):
        raise SanpError(f"{folder} is finished: evaluate it with sanp eval {folder}")
    return train(replace(recipe, threads=threads or recipe.threads), folder, watch=watch, tell=tell, resume=True)
