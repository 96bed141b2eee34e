"""The paper's three stages (4.1.2): pretrain the network, warm the SPMs up with the kernels frozen, train both jointly.

A method is a generator of stages: it gives a stage, whoever drives it runs the stage, and between two stages it changes
the network (inserts SPMs, moves thresholds). So a driver can show, save, stop and resume without knowing the method.
"""

import copy
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.budget import ControllerConfig
from sanp.checked import check_kind
from sanp.config import FitConfig
from sanp.distributed import same_everywhere
from sanp.errors import SanpError
from sanp.finish import FAR, calibrate, estimate_norms
from sanp.freeze import frozen, hashing_restored, set_dropout, set_hashing
from sanp.network import GatedNetwork
from sanp.objective import Budget, ObjectiveConfig
from sanp.precision import Format
from sanp.record import record
from sanp.schedule import Schedule, cosine, flat, step
from sanp.spm import SPMConfig, closing_rate
from sanp.stages import Loader, Outcome, Progress, Stage, Tuned, steps_in, tuned

TaskLoss = Callable[[Any, Any], Tensor]
"""Output and target to a loss."""

TASK_SETTINGS = {"config": FitConfig, "spm": SPMConfig, "objective": ObjectiveConfig, "controller": ControllerConfig}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a method is given: the data, the budget, and every setting."""

    loader: Loader
    budget: object
    config: FitConfig = field(default_factory=FitConfig)
    spm: SPMConfig = field(default_factory=SPMConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    loss: TaskLoss | None = None
    """output and target to a loss; cross entropy if not given"""
    teacher: nn.Module | None = None
    """what to distill from; the network as it stands before it is pruned if not given"""

    def __post_init__(self) -> None:
        for name, kind in TASK_SETTINGS.items():
            check_kind(name, getattr(self, name), kind, f"a sanp.{kind.__name__}")
        check_kind("loss", self.loss, Callable | None, "a function of output and target")
        check_kind("teacher", self.teacher, nn.Module | None, "a network")

    def example(self) -> Tensor:
        """One image, as the loader gives it."""
        x: Tensor = next(iter(self.loader))[0][:1]
        return x

    def task_loss(self, output: Any, target: Any) -> Tensor:
        """The loss of the task itself."""
        if self.loss is not None:
            return self.loss(output, target)
        return F.cross_entropy(output.float(), target, label_smoothing=self.config.label_smoothing)

    def loss_with_teacher(self, x: Tensor, output: Any, target: Any) -> Tensor:
        """The task's loss mixed with the distance from the teacher's answer, as far as ``config.distill`` says."""
        loss = self.task_loss(output, target)
        share = self.config.distill
        if self.teacher is None or not share:
            return loss
        with torch.no_grad():
            wanted = self.teacher(x)
        return (1 - share) * loss + share * distillation(output, wanted, self.config.temperature)


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


def with_teacher(task: Task, net: nn.Module) -> Task:
    """The task with a frozen copy of ``net`` to distill from, where it wants one and has none."""
    if task.teacher is not None or not task.config.distill:
        return task
    teacher = copy.deepcopy(net).eval().requires_grad_(False)
    return replace(task, teacher=teacher)


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


def finish(gated: GatedNetwork, task: Task, share: float) -> None:
    """After the last step: batch norm statistics with evaluation's gates, then the thresholds that meet the budget."""
    if hasattr(task.loader, "set_epoch"):
        task.loader.set_epoch(task.config.joint_epochs)  # the same images whether or not the run was interrupted
    format = Format(gated, task.config.precision)
    with format.autocast():
        for _ in range(2):
            estimate_norms(gated, task.loader, task.config.norm_batches, format)
            if calibrate(gated, task.loader, share, task.config.calibrate_images, format) <= FAR:
                break
    same_everywhere(gated)  # a loader of one's own may give each process other images


def distillation(output: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """T² KL(teacher, student) of the softened answers (Hinton et al., 2015)."""
    student = F.log_softmax(output.float() / temperature, 1)
    teacher = F.log_softmax(wanted.float() / temperature, 1)
    return temperature**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def share_right(output: Any, y: Any) -> float | None:
    """The share of a batch that a classifier has right; None where there are no classes."""
    if not (isinstance(output, Tensor) and isinstance(y, Tensor) and output.dim() == 2 and y.dim() == 1):
        return None
    return float((output.argmax(1) == y).float().mean())


def schedule(config: FitConfig) -> Schedule:
    """The learning rate's course over a stage."""
    return cosine(config.rise) if config.schedule == "cosine" else step(config.step_epochs)


def sgd(parameters: list[nn.Parameter], lr: float, config: FitConfig) -> torch.optim.Optimizer:
    """Momentum SGD with the configured settings."""
    return torch.optim.SGD(
        parameters, lr=lr, momentum=config.momentum, nesterov=config.nesterov, weight_decay=config.weight_decay
    )


def spm_optimizer(gated: GatedNetwork, config: FitConfig, steps: int) -> Tuned:
    """AdamW without decay on a level schedule, or SGD just as the network's own."""
    lr = config.spm_lr or closing_rate(steps)
    if config.spm_optimizer == "sgd":
        return tuned(sgd(gated.spm_parameters(), lr, config), schedule(config))
    adam = torch.optim.AdamW(gated.spm_parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0)
    return tuned(adam, flat(config.rise))
