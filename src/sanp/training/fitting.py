"""The paper's three stages (4.1.2): pretrain the network, warm the SPMs up with the kernels frozen, train both jointly.

A method is a generator of stages: it gives a stage, whoever drives it runs the stage, and between two stages it changes
the network (inserts SPMs, moves thresholds). So a driver can show, save, stop and resume without knowing the method.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.gating.network import GatedNetwork
from sanp.spm.binarize import SemanticHashing
from sanp.spm.recording import record
from sanp.training.budget import Budget, ObjectiveConfig
from sanp.training.config import FitConfig
from sanp.training.controller import ControllerConfig
from sanp.training.finish import finish
from sanp.training.optimizers import schedule, sgd, spm_optimizer, tuned
from sanp.training.precision import Format
from sanp.training.stage import Loader, Outcome, Progress, Stage, steps_in
from sanp.training.task import Task, TaskLoss, set_dropout, share_right, with_teacher

Stages = Generator[Stage, None, nn.Module]
"""Stages to be run one after the other; what it returns is the finished network."""


def fit(
    gated: GatedNetwork,
    train_loader: Loader,
    budget: object,
    *,
    config: FitConfig | None = None,
    objective: ObjectiveConfig | None = None,
    controller: ControllerConfig | None = None,
    loss: TaskLoss | None = None,
    teacher: nn.Module | None = None,
    on_step: Callable[[Progress], None] | None = None,
) -> None:
    """Warm-up, then joint training; ends within the budget.

    ``loss`` takes output and target and is cross entropy if not given. ``teacher`` is the network to distill from; if
    not given it is the gated network as it stands at the start.
    """
    task = Task(
        loader=train_loader,
        budget=budget,
        config=config or FitConfig(),
        objective=objective or ObjectiveConfig(),
        controller=controller or ControllerConfig(),
        loss=loss,
        teacher=teacher,
    )
    run_stages(fit_stages(gated, task), on_step)


def run_stages(stages: Stages, on_step: Callable[[Progress], None] | None = None) -> nn.Module:
    """Runs every stage to its end and gives the finished network."""
    while True:
        try:
            stage = next(stages)
        except StopIteration as over:
            network: nn.Module = over.value
            return network
        for progress in stage.run():
            if on_step is not None:
                on_step(progress)


def fit_stages(gated: GatedNetwork, task: Task) -> Stages:
    """Warm-up, joint stage and finish of a network that is gated already."""
    if not isinstance(gated, GatedNetwork):
        raise SanpError(f"{type(gated).__name__} is not gated: give fit what sanp.gate returned")
    share = gated.share(task.budget)  # an impossible budget is an error before anything is trained
    task = with_teacher(task, gated)
    set_dropout(gated, task.config.dropout)
    if gated.spm_parameters() and task.config.warmup_epochs:
        yield warmup_stage(gated, task)
    yield joint_stage(gated, task)
    finish(gated, task, share)
    return gated


def pretrain_stage(net: nn.Module, task: Task) -> Stage:
    """Stage one: the network alone, with its task's loss."""
    config = task.config

    def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
        output = net(x)
        return Outcome(task.task_loss(output, y), share_right(output, y))

    optimizers = [tuned(sgd(list(net.parameters()), config.pretrain_lr, config), schedule(config))]
    format = Format(net, config.precision)
    return Stage("pretrain", net, task.loader, config.pretrain_epochs, step_loss, optimizers, format)


def warmup_stage(gated: GatedNetwork, task: Task) -> Stage:
    """Stage two: the SPMs alone, with the task's loss and λ = 0; every other parameter stands still."""

    def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
        with record(gated) as gates:
            output = gated(x)
        decisions = {name: gate.decision for name, gate in gates.items()}
        cost = float(gated.cost.per_sample(decisions).mean()) / gated.dense_flops
        return Outcome(task.task_loss(output, y), share_right(output, y), cost, 1.0, 0.0)

    return Stage(
        "warm-up",
        gated,
        task.loader,
        task.config.warmup_epochs,
        step_loss,
        [spm_optimizer(gated, task.config, task.config.joint_epochs * steps_in(task.loader))],
        Format(gated, task.config.precision),
        around=lambda: frozen(gated.backbone_parameters()),
    )


def joint_stage(gated: GatedNetwork, task: Task) -> Stage:
    """Stage three: everything, with the multi-task loss (eq. 11) and λ live (eq. 12)."""
    config = task.config
    settle = 1.0 if config.settle is None else config.settle
    steps = max(1, config.joint_epochs * steps_in(task.loader))
    term = Budget(gated, task.budget, objective=task.objective, controller=task.controller, steps=steps)
    if task.teacher is not None:
        Format(task.teacher, config.precision)

    def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
        if progress >= 1 - settle:
            set_hashing(gated, noise=0.0, soft_share=0.0)
        with record(gated) as gates:
            output = gated(x)
        loss = task.loss_with_teacher(x, output, y)
        total = loss + term.loss(gates)
        right = share_right(output, y)
        return Outcome(total, right, term.running_cost, term.target, term.cost_weight, shown=loss.item())

    optimizers = [tuned(sgd(gated.backbone_parameters(), config.lr, config), schedule(config))]
    if gated.spm_parameters():
        optimizers.append(spm_optimizer(gated, config, steps))
    return Stage(
        "joint",
        gated,
        task.loader,
        config.joint_epochs,
        step_loss,
        optimizers,
        Format(gated, config.precision),
        around=lambda: hashing_restored(gated),
        also=term,
    )


@contextmanager
def frozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    """No gradient for these parameters inside."""
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)


def hashes(gated: GatedNetwork) -> list[SemanticHashing]:
    """The binarizers of all SPMs that use Improved Semantic Hashing."""
    return [layer.spm.binarize for layer in gated.layers.values() if isinstance(layer.spm.binarize, SemanticHashing)]


def set_hashing(gated: GatedNetwork, *, noise: float, soft_share: float) -> None:
    """Sets the noise and the share of soft samples of every SPM that hashes."""
    for each in hashes(gated):
        each.noise, each.soft_share = noise, soft_share


@contextmanager
def hashing_restored(gated: GatedNetwork) -> Iterator[None]:
    """Noise and soft share are afterwards what they were."""
    before = [(each, each.noise, each.soft_share) for each in hashes(gated)]
    try:
        yield
    finally:
        for each, noise, soft_share in before:
            each.noise, each.soft_share = noise, soft_share
