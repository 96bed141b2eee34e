"""Training of a network without gates, as the static methods need it: the same loss, optimizer and epochs as SANP's."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext

from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.gating.amount import parse_budget
from sanp.spm.recording import Gates, record
from sanp.training.config import FitConfig
from sanp.training.finish import estimate_norms
from sanp.training.optimizers import Tuned, schedule, sgd, tuned
from sanp.training.precision import Format
from sanp.training.stage import Outcome, Stage
from sanp.training.task import Task, share_right

Extra = Callable[[float, Mapping[str, Gates]], Tensor]
"""The share of the stage's steps done, and what the forward recorded, to a term that is added to the loss."""


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
    extra: Extra | None = None,
    before_step: Callable[[float], None] | None = None,
    also_train: tuple[Tuned, ...] = (),
    only: list[nn.Parameter] | None = None,
) -> Stage:
    """All parameters, or ``only`` some by SGD and others by ``also_train``: the task's loss with the teacher's."""
    if task.teacher is not None:
        Format(task.teacher, task.config.precision)

    def step_loss(x: Tensor, y: object, progress: float) -> Outcome:
        if before_step is not None:
            before_step(progress)
        with record(net) as gates:
            output = net(x)
        loss = task.loss_with_teacher(x, output, y)
        total = loss if extra is None else loss + extra(progress, gates)
        return Outcome(total, share_right(output, y), shown=loss.item())

    parameters = list(net.parameters()) if only is None else only
    optimizers = [tuned(sgd(parameters, task.config.lr, task.config), schedule(task.config)), *also_train]
    format = Format(net, task.config.precision)
    return Stage(name, net, task.loader, epochs, step_loss, optimizers, format, around=nullcontext)


def finish_norms(net: nn.Module, task: Task) -> None:
    """Batch norm statistics as SANP's finish estimates them."""
    if hasattr(task.loader, "set_epoch"):
        task.loader.set_epoch(task.config.joint_epochs)
    format = Format(net, task.config.precision)
    with format.autocast():
        estimate_norms(net, task.loader, task.config.norm_batches, format)


def share_of(task: Task, dense_flops: int) -> float:
    """The budget as a share of the dense FLOPs."""
    share = parse_budget(task.budget).share_of(dense_flops)
    if share > 1:
        raise SanpError(f"a budget of {task.budget} is more than the dense network's FLOPs: nothing to prune")
    return share


def total_lr(config: FitConfig, epochs: int, steps: int, weight: Callable[[float], float] = lambda _: 1.0) -> float:
    """Σ weight · lr over the steps of a stage, momentum's echo included: how far such a gradient moves a parameter."""
    course = schedule(config)
    count = max(1, epochs * steps)
    total = sum(weight(step / count) * course(step / count, step // max(1, steps)) for step in range(count))
    return config.lr * total / (1 - config.momentum)
