"""Training of networks without gates, for the static methods, with the loss, optimizer and epochs of SANP."""

from collections.abc import Callable

from torch import nn

from sanp.core.errors import SanpError
from sanp.gating.amount import parse_budget
from sanp.training.config import FitConfig
from sanp.training.optimizers import Scheduled, schedule, scheduled, sgd
from sanp.training.stage import Stage
from sanp.training.task import Task
from sanp.training.term import Penalty, PenaltyTerm, stage_with_term


def epochs_in_parts(task: Task, *parts: float) -> list[int]:
    """The epochs of SANP's warm-up and joint stage together, divided in the proportions ``parts``."""
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
    also_train: tuple[Scheduled, ...] = (),
    only: list[nn.Parameter] | None = None,
) -> Stage:
    """A stage that trains ``net`` with the task's loss, distillation and a penalty.

    ``name`` is the stage's name. ``before_step`` is called before each step with the share of the steps that is done.
    SGD trains all parameters, or those in ``only``; ``also_train`` are further optimizers.
    """
    parameters = list(net.parameters()) if only is None else only
    optimizers = [scheduled(sgd(parameters, task.config.lr, task.config), schedule(task.config)), *also_train]
    term = None if penalty is None else PenaltyTerm(penalty)
    return stage_with_term(name, net, task, epochs, optimizers, term, before_step=before_step)


def kept_of(task: Task, dense_flops: int) -> float:
    """The budget of the task as a share of ``dense_flops``; an error if it is more than all."""
    kept = parse_budget(task.budget).kept_of(dense_flops)
    if kept > 1:
        raise SanpError(f"a budget of {task.budget} is more than the dense network's FLOPs: nothing to prune")
    return kept


def check_reach(least: float, kept: float, method: str) -> None:
    """Raises an error if the budget ``kept`` is below ``least``, the smallest share of the FLOPs a method can reach.

    ``method`` is the method's name.
    """
    if kept < least:
        raise SanpError(
            f"a budget of {kept:.1%} of the dense FLOPs is below the {least:.1%} that {method} can come to on this "
            "network: give at least that, or choose a method that gates every layer, such as sanp"
        )


def total_lr(config: FitConfig, epochs: int, steps: int, weight: Callable[[float], float] = lambda _: 1.0) -> float:
    """Σ weight · lr over the steps of a stage, times 1 / (1 - momentum): how far a gradient of 1 moves a parameter.

    ``steps`` is the number of steps of an epoch. ``weight`` gives the weight of the gradient when a share of the steps
    is done.
    """
    course = schedule(config)
    count = max(1, epochs * steps)
    total = sum(weight(step / count) * course(step / count, step // max(1, steps)) for step in range(count))
    return config.lr * total / (1 - config.momentum)
