"""One stage of training: epochs over a loader with its optimizers, schedules and loss; a step at a time.

The paper's three (4.1.2) are pretrain, warm-up and joint: see fitting.py. A stage is an iterator of :class:`Progress`,
so that whoever runs it can show it, write it down, save between two steps, or stop.
"""

import itertools
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from sanp.core import distributed
from sanp.core.batch_checks import explained, pair
from sanp.core.errors import SanpError
from sanp.training.nonfinite import NotFinite, where
from sanp.training.optimizers import Tuned
from sanp.training.parallel.ddp import over_ranks, part_of
from sanp.training.precision import Format


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training is, and how it goes: the numbers are of the last step, ``accuracy`` is None without classes."""

    stage: str
    epoch: int
    epochs: int
    step: int
    """steps done in this stage"""
    steps: int
    loss: float
    """of the task, without the cost term"""
    accuracy: float | None
    kept: float | None
    """running mean of the share of the dense FLOPs that is computed; None for an ungated network"""
    target: float | None
    cost_weight: float | None
    """λ"""
    epoch_over: bool


class Loader(Protocol):
    """Batches of (input, target), the same number in every epoch: a ``DataLoader``, ``sanp.data.Batches``, a list."""

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...


@dataclass
class Outcome:
    """What one step's loss found: the loss to go backward from, and what to show of it."""

    loss: Tensor
    correct: float | None = None
    """share of the batch that was classified rightly"""
    kept: float | None = None
    """share of the dense FLOPs that is computed"""
    target: float | None = None
    """what it should be"""
    cost_weight: float | None = None
    shown: float | None = None
    """the task's part of the loss, where it has others"""
    value: float | None = None
    """the loss as a number, where it is of a batch that several processes share; ``loss`` is then this one's part"""


StepLoss = Callable[[Tensor, Any, float], Outcome]
"""Input, target and the share of the stage's steps done, to what came of it."""


@runtime_checkable
class Stateful(Protocol):
    """Something whose state belongs into a checkpoint."""

    def state(self) -> dict[str, Any]:
        """Plain numbers."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where the state was taken."""
        ...


class Stage:
    """A number of epochs with one loss and one set of optimizers."""

    def __init__(
        self,
        name: str,
        net: nn.Module,
        loader: Loader,
        epochs: int,
        step_loss: StepLoss,
        optimizers: list[Tuned],
        format: Format,
        *,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        also: Stateful | None = None,
    ) -> None:
        self.name, self.net, self.loader, self.epochs = name, net, loader, epochs
        self.steps_per_epoch = steps_in(loader)
        self.steps = epochs * self.steps_per_epoch
        self.step = 0
        self.optimizers = optimizers
        self.also = also
        """what besides network and optimizers has a state, such as the budget's controller"""
        self._step_loss, self._format, self._around = step_loss, format, around

    def run(self) -> Iterator[Progress]:
        """Trains, from the step it stands at to the end."""
        self.net.train()
        with self._around():
            step_loss = over_ranks(self._step_loss, self.net, self._other_parameters())
            loader = part_of(self.loader)
            while self.step < self.steps:
                epoch, done = divmod(self.step, self.steps_per_epoch)
                for batch in _epoch_from(loader, epoch, done):
                    x, y = pair(batch)
                    placed = self._format.place(x), _placed(y, self._format.device)
                    outcome = self._train_on(*placed, epoch, step_loss)
                    self.step += 1
                    yield self._progress(epoch, outcome)

    def _other_parameters(self) -> list[nn.Parameter]:
        """What the optimizers move that is not the network's."""
        own = {id(parameter) for parameter in self.net.parameters()}
        groups = [group for each in self.optimizers for group in each.optimizer.param_groups]
        return [parameter for group in groups for parameter in group["params"] if id(parameter) not in own]

    def _train_on(self, x: Tensor, y: Any, epoch: int, step_loss: StepLoss) -> Outcome:
        progress = self.step / self.steps
        for each in self.optimizers:
            each.set(progress, epoch)
            each.optimizer.zero_grad(set_to_none=True)
        with explained(self.net, x, y), self._format.autocast():
            outcome = step_loss(x, y, progress)
        loss = outcome.loss.item() if outcome.value is None else outcome.value
        if not math.isfinite(loss):
            raise self._not_finite(loss, x)
        outcome.loss.backward()
        for each in self.optimizers:
            each.optimizer.step()
        return outcome

    def _not_finite(self, loss: float, x: Tensor) -> NotFinite:
        found = next(filter(None, distributed.texts(where(self.net, x))), "")
        return NotFinite(
            f"the loss became {loss} at step {self.step + 1} of stage {self.name}{found and f' ({found})'}: "
            "lower the learning rate (lr, spm_lr), or check the images and labels for NaN"
        )

    def _progress(self, epoch: int, outcome: Outcome) -> Progress:
        loss = outcome.loss.item() if outcome.value is None else outcome.value
        return Progress(
            stage=self.name,
            epoch=epoch + 1,
            epochs=self.epochs,
            step=self.step,
            steps=self.steps,
            loss=loss if outcome.shown is None else outcome.shown,
            accuracy=outcome.correct,
            kept=outcome.kept,
            target=outcome.target,
            cost_weight=outcome.cost_weight,
            epoch_over=self.step % self.steps_per_epoch == 0,
        )


Stages = Generator[Stage, None, nn.Module]
"""Stages to be run one after the other; what it returns is the finished network."""


def drive(stages: Stages, run: Callable[[int, Stage], None]) -> nn.Module:
    """Has each stage run, with its number, before the next one is asked for; gives the finished network."""
    for number in itertools.count():
        try:
            stage = next(stages)
        except StopIteration as over:
            network: nn.Module = over.value
            return network
        run(number, stage)
    raise AssertionError("unreachable")


def _epoch_from(loader: Loader, epoch: int, done: int) -> Iterator[Any]:
    """The batches of an epoch that are still to come; loaders that know their epoch are told which it is."""
    if hasattr(loader, "set_epoch"):
        loader.set_epoch(epoch)
    elif hasattr(getattr(loader, "sampler", None), "set_epoch"):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
    if hasattr(loader, "starting_at"):
        yield from loader.starting_at(done)
        return
    for index, batch in enumerate(loader):
        if index >= done:
            yield batch


def _placed(target: Any, device: torch.device) -> Any:
    return target.to(device, non_blocking=True) if isinstance(target, Tensor) else target


def steps_in(loader: Loader) -> int:
    """Batches in an epoch; a loader that cannot tell, or has none, is an error."""
    try:
        length = len(loader)
    except TypeError as error:
        raise SanpError(
            f"{type(loader).__name__} has no length: give a loader that knows how many batches it has"
        ) from error
    if length == 0:
        raise SanpError("the training loader is empty: give at least one batch (is the batch larger than the data?)")
    return length
