"""Training of a network without gates, as the static methods need it: the same loss, optimizer and epochs as SANP's."""

from collections.abc import Callable

from torch import nn

from sanp.core.errors import SanpError
from sanp.gating.amount import parse_budget
from sanp.training.config import FitConfig
from sanp.training.optimizers import Tuned, schedule, sgd, tuned
from sanp.training.stage import Stage
from sanp.training.task import Task
from sanp.training.term import Penalty, PenaltyTerm, stage_with_term


def epochs_in_parts(task: Task, *parts: float) -> list[int]:
    """SANP's epochs (warm-up and joint) divided in these proportions: never one more or less in all."""
    total = task.config.warmup_epochs + task.config.joint_epochs
    ends = [round(total * sum(parts[: number + 1]) / sum(parts)) for number in range(len(parts))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def plain_stage(
    name: str,
    net: nn.Module,
    task: Task,
    epochs: int,
    *,
    penalty: Penalty | None = None,
    before_step: Callable[[float], None] | None = None,
    also_train: tuple[Tuned, ...] = (),
    only: list[nn.Parameter] | None = None,
) -> Stage:
    """A stage without gates: the task's loss with the teacher's, and a penalty.

    SGD trains all parameters, or ``only`` some; ``also_train`` are further optimizers.
    """
    parameters = list(net.parameters()) if only is None else only
    optimizers = [tuned(sgd(parameters, task.config.lr, task.config), schedule(task.config)), *also_train]
    term = None if penalty is None else PenaltyTerm(penalty)
    return stage_with_term(name, net, task, epochs, optimizers, term, before_step=before_step)


def kept_of(task: Task, dense_flops: int) -> float:
    """The share of the dense FLOPs that the budget leaves."""
    kept = parse_budget(task.budget).kept_of(dense_flops)
    if kept > 1:
        raise SanpError(f"a budget of {task.budget} is more than the dense network's FLOPs: nothing to prune")
    return kept


def check_reach(least: float, kept: float, method: str) -> None:
    """An error, before anything is trained, for a budget below the least that a method can come to."""
    if kept < least:
        raise SanpError(
            f"a budget of {kept:.1%} of the dense FLOPs is below the {least:.1%} that {method} can come to on this "
            "network: give at least that, or choose a method that gates every layer, such as sanp"
        )


def total_lr(config: FitConfig, epochs: int, steps: int, weight: Callable[[float], float] = lambda _: 1.0) -> float:
    """Σ weight · lr over the steps of a stage, momentum's echo included: how far such a gradient moves a parameter."""
    course = schedule(config)
    count = max(1, epochs * steps)
    total = sum(weight(step / count) * course(step / count, step // max(1, steps)) for step in range(count))
    return config.lr * total / (1 - config.momentum)
