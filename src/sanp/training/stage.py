"""One stage of training: some epochs over a loader with one loss and its optimizers, run step by step.

The three stages of the paper (4.1.2) are in three_stages.py. A running stage yields a :class:`Progress` after each
step, so that the caller can show it, log it, save between two steps, or stop.
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
from sanp.core.batch_checks import bad_batch_explained, input_and_target
from sanp.core.errors import SanpError
from sanp.training.nonfinite import NotFinite, where
from sanp.training.optimizers import Scheduled
from sanp.training.parallel.ddp import over_ranks, part_of
from sanp.training.precision import Format


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of training after a step."""

    stage: str
    """name of the stage"""
    epoch: int
    """the present epoch of the stage, from 1"""
    epochs: int
    """epochs of the stage"""
    step: int
    """steps done in this stage"""
    steps: int
    """steps of the stage"""
    loss: float
    """the task's loss in this step, without penalties"""
    accuracy: float | None
    """share of the batch that was classified correctly; None if the task has no classes"""
    kept: float | None
    """share of the dense FLOPs that is computed, for most methods as a running mean; None for an ungated network"""
    target: float | None
    """what ``kept`` should be in this step"""
    cost_weight: float | None
    """λ"""
    epoch_over: bool
    """this was the last step of its epoch"""
    test_accuracy: float | None = None
    """on the test images, or the held-out ones if there are any, after the epoch that is over; None: not measured"""


Watch = Callable[[Progress], None]
"""Is called after every training step."""


class Loader(Protocol):
    """Batches of (input, target), the same number in every epoch: a ``DataLoader``, ``sanp.data.Batches`` or a list."""

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...


@dataclass
class Outcome:
    """The loss of one step, and the numbers to show."""

    loss: Tensor
    """the loss whose gradients are computed"""
    correct: float | None = None
    """share of the batch that was classified correctly"""
    kept: float | None = None
    """share of the dense FLOPs that is computed"""
    target: float | None = None
    """what ``kept`` should be"""
    cost_weight: float | None = None
    """λ"""
    shown: float | None = None
    """the task's loss as a number, if ``loss`` has other parts too"""
    value: float | None = None
    """if several processes share the batch, the loss of the whole batch as a number; ``loss`` is this process's part"""


StepLoss = Callable[[Tensor, Any, float], Outcome]
"""Computes the loss of a step from the input, the target and the share of the stage's steps that is done."""


@runtime_checkable
class Stateful(Protocol):
    """Something with a state that checkpoints must keep."""

    def state(self) -> dict[str, Any]:
        """The state as plain numbers."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a state that :meth:`state` returned."""
        ...


class Stage:
    """Some epochs of training with one loss and one set of optimizers.

    ``name`` is shown to the user. ``net`` is trained in place on the batches of ``loader``. ``step_loss`` computes the
    loss of a step. ``optimizers`` are stepped together; ``format`` sets the precision. ``around`` makes a context that
    is entered while the stage runs. ``also`` has a state that checkpoints must keep too.
    """

    def __init__(
        self,
        name: str,
        net: nn.Module,
        loader: Loader,
        epochs: int,
        step_loss: StepLoss,
        optimizers: list[Scheduled],
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
        """has a state besides that of the network and the optimizers, such as the controller of λ"""
        self._step_loss, self._format, self._around = step_loss, format, around

    def run(self) -> Iterator[Progress]:
        """Trains from the present step to the end of the stage; yields the progress after each step."""
        self.net.train()
        with self._around():
            step_loss = over_ranks(self._step_loss, self.net, self._other_parameters())
            loader = part_of(self.loader)
            while self.step < self.steps:
                epoch, done = divmod(self.step, self.steps_per_epoch)
                for batch in _epoch_from(loader, epoch, done):
                    x, y = input_and_target(batch)
                    placed = self._format.place(x), _placed(y, self._format.device)
                    outcome = self._train_on(*placed, epoch, step_loss)
                    self.step += 1
                    yield self._progress(epoch, outcome)

    def _other_parameters(self) -> list[nn.Parameter]:
        """The parameters that the optimizers train but the network does not have."""
        own = {id(parameter) for parameter in self.net.parameters()}
        groups = [group for each in self.optimizers for group in each.optimizer.param_groups]
        return [parameter for group in groups for parameter in group["params"] if id(parameter) not in own]

    def _train_on(self, x: Tensor, y: Any, epoch: int, step_loss: StepLoss) -> Outcome:
        progress = self.step / self.steps
        for each in self.optimizers:
            each.set(progress, epoch)
            each.optimizer.zero_grad(set_to_none=True)
        with bad_batch_explained(self.net, x, y), self._format.autocast():
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
"""A generator of stages to be run one after the other; it returns the finished network."""


def drive(stages: Stages, run: Callable[[int, Stage], None]) -> nn.Module:
    """Runs ``stages`` one after the other and returns the finished network.

    ``run`` is called with the number of each stage, from 0, and the stage. It must run the stage to its end; only then
    the next stage is made.
    """
    for number in itertools.count():
        try:
            stage = next(stages)
        except StopIteration as over:
            network: nn.Module = over.value
            return network
        run(number, stage)
    raise AssertionError("unreachable")


def _epoch_from(loader: Loader, epoch: int, done: int) -> Iterator[Any]:
    """The batches of an epoch after the first ``done`` ones; a loader with ``set_epoch`` is told the epoch."""
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
    """The number of batches in an epoch; an error if the loader has no length or no batch."""
    try:
        length = len(loader)
    except TypeError as error:
        raise SanpError(
            f"{type(loader).__name__} has no length: give a loader that knows how many batches it has"
        ) from error
    if length == 0:
        raise SanpError("the training loader is empty: give at least one batch (is the batch larger than the data?)")
    return length
