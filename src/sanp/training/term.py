"""The stage that every method trains with: the task's loss, with the teacher's, plus a term of the method's own."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from sanp.spm.recording import Gates, record
from sanp.training.optimizers import Tuned
from sanp.training.precision import Format, lay_out
from sanp.training.stage import Outcome, Stage, Stateful
from sanp.training.task import Task, share_right


@dataclass(frozen=True)
class Forward:
    """One forward of a training step."""

    output: Any
    target: Any
    gates: Mapping[str, Gates]
    """what every SPM decided"""
    progress: float
    """the share of the stage's steps that is done"""


@dataclass(frozen=True)
class Contribution:
    """What a term makes of a forward."""

    loss: Tensor | None = None
    """added to the task's loss"""
    kept: float | None = None
    """share of the dense FLOPs that was computed, and the next two: shown, and written to the metrics"""
    target: float | None = None
    weight: float | None = None


class Term(Protocol):
    """A method's own part of the loss; one with ``state`` and ``restore`` is kept in checkpoints."""

    def contribute(self, forward: Forward) -> Contribution:
        """Called once for every training step."""
        ...


Penalty = Callable[[Forward], Tensor]
"""A term without a memory that follows no budget."""


class PenaltyTerm:
    """A penalty as a term."""

    def __init__(self, penalty: Penalty) -> None:
        self.penalty = penalty

    def contribute(self, forward: Forward) -> Contribution:
        """The penalty alone."""
        return Contribution(self.penalty(forward))


def stage_with_term(
    name: str,
    network: nn.Module,
    task: Task,
    epochs: int,
    optimizers: list[Tuned],
    term: Term | None = None,
    *,
    distill: bool = True,
    before_step: Callable[[float], None] | None = None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Stage:
    """A stage that trains ``network`` on the task's loss and a term.

    ``distill`` mixes in the answers of the task's teacher, if it has one. ``before_step`` gets the share of the steps
    that is done before each of them. ``around`` is entered while the stage runs.
    """
    if distill and task.teacher is not None:
        lay_out(task.teacher)

    def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
        if before_step is not None:
            before_step(progress)
        with record(network) as gates:
            output = network(x)
        loss = task.loss_with_teacher(x, output, y) if distill else task.task_loss(output, y)
        right = share_right(output, y)
        if term is None:
            return Outcome(loss, right, shown=loss.item())
        made = term.contribute(Forward(output, y, gates, progress))
        total = loss if made.loss is None else loss + made.loss
        return Outcome(total, right, made.kept, made.target, made.weight, shown=loss.item())

    format = Format(network, task.config.precision)
    also = term if isinstance(term, Stateful) else None
    return Stage(name, network, task.loader, epochs, step_loss, optimizers, format, around=around, also=also)
