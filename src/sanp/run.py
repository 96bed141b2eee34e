"""A run: one recipe carried out in a folder that holds all of it, and that can be gone on with after any interruption.

config.toml         everything needed to run it again
metrics.jsonl       a line an epoch
dense.safetensors   the network before pruning
model.safetensors   the pruned network
report.json         what evaluation found: ``dense``, and the fields of Report
state/              where training stands; gone when the run is finished
"""

import copy
import json
import math
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from sanp import data, distributed
from sanp.backbones import build
from sanp.checkpoint import load, save, write_atomically
from sanp.distributed import by_first
from sanp.errors import SanpError, Stopped
from sanp.evaluate import Report, evaluate
from sanp.fit import Stages, Task, pretrain_stage
from sanp.freeze import set_dropout
from sanp.gate import gate
from sanp.lock import locked
from sanp.memory import keep_freed_memory
from sanp.nonfinite import NotFinite, bad_parameter
from sanp.pretrained import weights_named
from sanp.progress_log import ProgressLog
from sanp.recipe import Recipe, make_recipe, merge, read_recipe
from sanp.resume import Interrupted, Position, Saved
from sanp.spm import BEFORE
from sanp.stages import Progress, Stage

Watch = Callable[[Progress], None]
CONFIG, REPORT = "config.toml", "report.json"
FORMAT = 1
"""of report.json; config.toml has the recipes' own"""
NUMBERS = ("accuracy", "error", "flops", "dense_flops", "kept", "pruned", "overhead_flops")
"""what every report.json holds as plain numbers"""


@dataclass(frozen=True)
class Finished:
    """What a run came to."""

    folder: Path
    dense: Report
    pruned: Report


def train(recipe: Recipe, folder: Path, *, watch: Watch | None = None, resume: bool = False) -> Finished:
    """Carries out a recipe in a folder: pretrain (or load), prune, evaluate, write everything down.

    Where torchrun started several processes, each calls this; the first one writes.
    """
    with ExitStack() as held, distributed.explained(f"go on with sanp train --resume {folder}"):
        by_first(lambda: prepare(recipe, folder, resume))
        by_first(lambda: held.enter_context(locked(folder)))
        _check_sight(folder)
        return _Run(recipe, folder, watch).carry_out()


def prepare(recipe: Recipe, folder: Path, resume: bool) -> None:
    """Makes the folder and writes the config, or checks that the folder holds a run that can be gone on with."""
    config = folder / CONFIG
    if resume:
        if not config.is_file():
            raise SanpError(f"{folder} holds no run (no config.toml): give the folder that sanp train made")
        return
    if config.exists():
        raise SanpError(f"{folder} holds a run already: go on with --resume {folder}, or choose another --out")
    shutil.rmtree(folder / "state", ignore_errors=True)  # of a run whose config is gone: it says nothing of this one
    write_atomically(config, lambda path: _write_text(path, recipe.as_toml()))


def _check_sight(folder: Path) -> None:
    """Processes on several machines must share the folder: all of them read it when a run is gone on with."""
    blind = distributed.texts("" if (folder / CONFIG).is_file() else str(distributed.rank()))
    if any(blind):
        raise SanpError(
            f"{folder} is not seen by process {', '.join(filter(None, blind))}: give a folder that all share"
        )


def read_run(folder: Path) -> Recipe:
    """The recipe of a run folder."""
    config = folder / CONFIG
    if not config.is_file():
        raise SanpError(f"{folder} is not a run folder (no config.toml): give the folder that sanp train made")
    return make_recipe(merge({"spm": BEFORE}, read_recipe(config)), str(config))


class Shape(Protocol):
    """What a network is built for; a data set knows it."""

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        ...

    @property
    def image_size(self) -> int:
        """Side of an image."""
        ...


def load_run(folder: Path, dataset: Shape) -> nn.Module:
    """The pruned network of a finished run."""
    recipe = read_run(folder)
    model = folder / "model.safetensors"
    if not model.is_file():
        raise SanpError(f"{folder} is not finished (no model.safetensors): go on with sanp train --resume {folder}")
    fresh = build(recipe.backbone, num_classes=dataset.num_classes, image_size=dataset.image_size)
    return load(model, fresh)


def load_data(recipe: Recipe, root: Path | None = None) -> data.Dataset:
    """The recipe's data set."""
    return data.load(recipe.data, root=root, size=recipe.image_size, limit=recipe.limit)


def evaluation_batches(dataset: data.Dataset, size: int = 250) -> data.Batches:
    """The test images in order."""
    return data.Batches(dataset.test, min(size, len(dataset.test)), mean=dataset.mean, std=dataset.std)


class _Run:
    """One run in progress."""

    def __init__(self, recipe: Recipe, folder: Path, watch: Watch | None) -> None:
        self.recipe, self.folder, self.watch = recipe, folder, watch
        keep_freed_memory()
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        torch.manual_seed(recipe.seed)
        with distributed.first_on_its_machine_first():
            self.data = load_data(recipe)
        self.net = build(recipe.backbone, num_classes=self.data.num_classes, image_size=self.data.image_size)
        if recipe.pretrained is not None:
            self.net = load(weights_named(recipe.pretrained), self.net)
        set_dropout(self.net, recipe.fit.dropout)
        self.task = self._task()
        self.dense: Report | None = None
        self.saved = Saved(folder / "state")

    def _task(self) -> Task:
        recipe, dataset = self.recipe, self.data
        loader = data.Batches(
            dataset.train,
            min(recipe.batch_size, len(dataset.train)),
            mean=dataset.mean,
            std=dataset.std,
            augment=dataset.augment,
            shuffle=True,
            seed=recipe.seed,
            drop_last=True,
        )
        return Task(
            loader=loader,
            budget=recipe.budget,
            config=recipe.fit,
            spm=recipe.spm,
            objective=recipe.objective,
            controller=recipe.controller,
        )

    def carry_out(self) -> Finished:
        """All stages, then evaluation."""
        gate(self.net, self.task.example()).share(self.recipe.budget)  # a budget below the floor fails here, not later
        pruned = self._drive(self._stages())
        report = evaluate(pruned, evaluation_batches(self.data))
        assert self.dense is not None
        dense = self.dense
        by_first(lambda: self._write(pruned, dense, report))
        return Finished(self.folder, self.dense, report)

    def _write(self, pruned: nn.Module, dense: Report, report: Report) -> None:
        """The results; the network last, for where it is the run is finished."""
        before = {"accuracy": dense.accuracy, "flops": dense.flops}
        write_report(self.folder, {"format": FORMAT, **report.as_dict(), "dense": before})
        save(pruned, self.folder / "model.safetensors")
        self.saved.clear()

    def _stages(self) -> Stages:
        """Pretraining unless a network was given, then the method's own stages."""
        if self.recipe.pretrained is None and self.recipe.fit.pretrain_epochs:
            yield pretrain_stage(self.net, self.task)
        self.dense = evaluate(self.net, evaluation_batches(self.data))
        by_first(lambda: save(self.net, self.folder / "dense.safetensors"))
        pruned = yield from self.recipe.pruning().stages(self.net, self.task)
        return pruned

    def _drive(self, stages: Stages) -> nn.Module:
        """Runs the stages from where the run stands, saving after every epoch and when asked to stop."""
        position = self.saved.position()
        log = ProgressLog(self.folder, position.log, silent=distributed.rank() > 0)
        with log, Interrupted() as interrupted:
            by_first(log.open)
            for number in range(1_000):
                try:
                    stage = next(stages)
                except StopIteration as over:
                    network: nn.Module = over.value
                    return network
                if number < position.stage:
                    self.saved.load_end(stage, number)
                    continue
                if number == position.stage:
                    self.saved.restore(stage)
                try:
                    self._run_stage(stage, number, log, interrupted)
                except NotFinite as error:
                    raise NotFinite(f"{error}. {self._kept()}") from error
        raise SanpError("a method gave a thousand stages: it does not end")

    def _run_stage(self, stage: Stage, number: int, log: ProgressLog, interrupted: Interrupted) -> None:
        for progress in stage.run():
            if self.watch is not None:
                self.watch(progress)
            log.step(progress)
            asked = distributed.any_rank(interrupted.asked)
            if progress.epoch_over or asked:
                if (name := bad_parameter(stage.net)) is not None:
                    raise NotFinite(f"{name} is not finite after step {progress.step} of stage {stage.name}: lower lr")
                by_first(lambda progress=progress: self._keep(stage, number, log, progress))  # type: ignore[misc]
            if asked:
                raise Stopped(f"stopped: go on with sanp train --resume {self.folder}")
        by_first(lambda: self.saved.write_end(stage, number))

    def _keep(self, stage: Stage, number: int, log: ProgressLog, progress: Progress) -> None:
        """Writes down where the run stands, and at the end of an epoch what came of it."""
        if progress.epoch_over:
            log.epoch(progress, self._test(stage.net, progress))
        self.saved.write(stage, Position(number, log.state()))

    def _kept(self) -> str:
        """What is left of a run that cannot go on as it is."""
        start = f"where {self.saved.now} was saved" if self.saved.now.exists() else "at the start"
        return f"Change {self.folder / CONFIG}, then sanp train --resume {self.folder} goes on {start}"

    def _test(self, net: nn.Module, progress: Progress) -> Report | None:
        every = self.recipe.test_every
        if every == 0 or progress.epoch % every:
            return None
        # A copy, for evaluation lays parameters out in its own way: training must not depend on whether it was tested.
        return evaluate(copy.deepcopy(net), evaluation_batches(self.data))


def read_report(folder: Path) -> dict[str, Any]:
    """What a finished run's evaluation found: the fields of Report, and ``dense``."""
    path = folder / REPORT
    if not path.is_file():
        raise SanpError(f"{folder} is not finished (no {REPORT}): go on with sanp train --resume {folder}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if (version := found.get("format", FORMAT)) != FORMAT:
            raise SanpError(f"{path} has format {version!r}, this sanp reads {FORMAT}: use the sanp that wrote it")
        numbers = [found[name] for name in NUMBERS] + [found["dense"][name] for name in ("accuracy", "flops")]
        optional = [part.get("seconds_per_image") or 0.0 for part in (found, found["dense"])]
        if not all(math.isfinite(value + 0.0) for value in numbers + optional) or found["dense_flops"] <= 0:
            raise ValueError("a value is out of its range")
    except SanpError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise SanpError(f"{path} is damaged ({why}): restore it; sanp eval {folder} needs none of it") from error
    return dict(found)


def write_report(folder: Path, found: dict[str, Any]) -> None:
    """Writes what :func:`read_report` reads."""
    write_atomically(folder / REPORT, lambda path: _write_text(path, json.dumps(found)))


def resumed(folder: Path, *, watch: Watch | None = None, threads: int | None = None) -> Finished:
    """Goes on with an interrupted run to its end."""
    recipe = read_run(folder)
    if (folder / "model.safetensors").exists():
        raise SanpError(f"{folder} is finished: evaluate it with sanp eval {folder}")
    return train(replace(recipe, threads=threads or recipe.threads), folder, watch=watch, resume=True)


def _write_text(path: Any, text: str) -> None:
    Path(path).write_text(text, encoding="utf-8")
