"""The stage that all methods train with: the task's loss, distillation, and a term of the method's own."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from sanp.spm.recording import Gates, record
from sanp.training.optimizers import Scheduled
from sanp.training.precision import Format, lay_out
from sanp.training.stage import Outcome, Stage, Stateful
from sanp.training.task import Task, share_right


@dataclass(frozen=True)
class Forward:
    """One forward of a training step."""

    output: Any
    """of the network"""
    target: Any
    """that the loader gave, such as labels"""
    gates: Mapping[str, Gates]
    """layer name to the gates of that layer"""
    progress: float
    """the share of the stage's steps that is done"""


@dataclass(frozen=True)
class Contribution:
    """The result of a term for one forward. All but the loss is only shown and written to the metrics."""

    loss: Tensor | None = None
    """is added to the task's loss"""
    kept: float | None = None
    """share of the dense FLOPs that is computed"""
    target: float | None = None
    """what ``kept`` should be"""
    weight: float | None = None
    """λ, or what the method has in its place"""


class Term(Protocol):
    """A method's own part of the loss; if it has ``state`` and ``restore``, checkpoints keep its state."""

    def contribute(self, forward: Forward) -> Contribution:
        """The term of one training step; called once for each."""
        ...


Penalty = Callable[[Forward], Tensor]
"""Computes a loss from a forward alone: a term that has no state and follows no budget."""


class PenaltyTerm:
    """A term that adds a penalty to the loss, and nothing else."""

    def __init__(self, penalty: Penalty) -> None:
        self.penalty = penalty

    def contribute(self, forward: Forward) -> Contribution:
        """The penalty of this forward."""
        return Contribution(self.penalty(forward))


def stage_with_term(
    name: str,
    network: nn.Module,
    task: Task,
    epochs: int,
    optimizers: list[Scheduled],
    term: Term | None = None,
    *,
    distill: bool = True,
    prepare: Callable[[Tensor, float], Tensor] | None = None,
    before_step: Callable[[float], None] | None = None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Stage:
    """A stage that trains ``network`` for ``epochs`` epochs with the task's loss plus ``term``.

    ``name`` is the stage's name. ``distill`` mixes in the distillation loss if the task has a teacher. ``prepare``
    changes the input of a step, given the share of the steps that is done; ``before_step`` is called before each step
    with that share. ``around`` makes a context that is entered while the stage runs.
    """
    if distill and task.teacher is not None:
        lay_out(task.teacher)

    def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
        if before_step is not None:
            before_step(progress)
        if prepare is not None:
            x = prepare(x, progress)
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
