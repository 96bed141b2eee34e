"""The paper's three stages (4.1.2): pretrain the network, warm the SPMs up with the kernels frozen, train both jointly.

A method is a generator of stages: it gives a stage, whoever drives it runs the stage, and between two stages it changes
the network (inserts SPMs, moves thresholds). So a driver can show, save, stop and resume without knowing the method.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

from sanp.core.errors import SanpError
from sanp.gating.accounting import mean_kept
from sanp.gating.network import GatedNetwork
from sanp.spm.binarize import Binarizer
from sanp.spm.recording import decisions_of
from sanp.training.budget import Budget, ObjectiveConfig
from sanp.training.config import FitConfig
from sanp.training.controller import ControllerConfig
from sanp.training.finish import finish
from sanp.training.optimizers import schedule, sgd, spm_optimizer, tuned
from sanp.training.stage import Loader, Progress, Stage, Stages, drive, steps_in
from sanp.training.task import Task, TaskLoss, set_dropout, with_teacher
from sanp.training.term import Contribution, Forward, stage_with_term


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

    ``gated`` is what ``sanp.gate`` returned and is trained in place. ``train_loader`` gives batches of (input, target),
    as many in every epoch. ``budget`` is a share (``0.35``, ``"35%"``), a count of multiply-adds (``"60M"``) or, with a
    latency table, a time (``"2.5ms"``). ``config`` says how long and by what means each stage trains, ``objective``
    what the cost loss is made of, ``controller`` how λ follows the budget. ``loss`` takes output and target; cross
    entropy if not given. ``teacher`` is the network to distill from; the gated network as it stands at the start if
    not given. ``on_step`` gets a :class:`Progress` after each step.
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

    def run(number: int, stage: Stage) -> None:
        for progress in stage.run():
            if on_step is not None:
                on_step(progress)

    return drive(stages, run)


def fit_stages(gated: GatedNetwork, task: Task) -> Stages:
    """Warm-up, joint stage and finish of a network that is gated already."""
    if not isinstance(gated, GatedNetwork):
        raise SanpError(f"{type(gated).__name__} is not gated: give fit what sanp.gate returned")
    steps = max(1, task.config.joint_epochs * steps_in(task.loader))
    # An impossible budget is an error here, before anything is trained.
    budget = Budget(gated, task.budget, objective=task.objective, controller=task.controller, steps=steps)
    task = with_teacher(task, gated)
    set_dropout(gated, task.config.dropout)
    if gated.spm_parameters() and task.config.warmup_epochs:
        yield warmup_stage(gated, task)
    yield joint_stage(gated, task, budget)
    finish(gated, task, budget.goal)
    return gated


def pretrain_stage(net: nn.Module, task: Task) -> Stage:
    """Stage one: the network alone, with its task's loss."""
    config = task.config
    optimizers = [tuned(sgd(list(net.parameters()), config.pretrain_lr, config), schedule(config))]
    return stage_with_term("pretrain", net, task, config.pretrain_epochs, optimizers, distill=False)


class WarmUpTerm:
    """λ = 0: adds nothing, and shows what the gates compute."""

    def __init__(self, gated: GatedNetwork) -> None:
        self.gated = gated

    def contribute(self, forward: Forward) -> Contribution:
        """The share that was computed, against all of it."""
        kept = mean_kept(self.gated.cost, decisions_of(forward.gates))
        return Contribution(None, kept, 1.0, 0.0)


def warmup_stage(gated: GatedNetwork, task: Task) -> Stage:
    """Stage two: the SPMs alone, with the task's loss and λ = 0; every other parameter stands still."""
    config = task.config
    return stage_with_term(
        "warm-up",
        gated,
        task,
        config.warmup_epochs,
        [spm_optimizer(gated, config, config.joint_epochs * steps_in(task.loader))],
        WarmUpTerm(gated),
        distill=False,
        around=lambda: frozen(gated.backbone_parameters()),
    )


class BudgetTerm:
    """The cost loss as a term of a stage (eq. 11 and 12)."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def contribute(self, forward: Forward) -> Contribution:
        """λ times the penalty; counts as one step of the budget."""
        loss = self.budget.loss(forward.gates)
        return Contribution(loss, self.budget.running_kept, self.budget.target, self.budget.cost_weight)

    def state(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        return self.budget.state()

    def restore(self, state: dict[str, float | None]) -> None:
        """Goes on where :meth:`state` was taken."""
        self.budget.restore(state)


def joint_stage(gated: GatedNetwork, task: Task, budget: Budget) -> Stage:
    """Stage three: everything, with the multi-task loss (eq. 11) and λ live (eq. 12)."""
    config = task.config
    hard_from = 0.0 if config.settle is None else 1 - config.settle

    def harden(progress: float) -> None:
        if progress >= hard_from:
            for binarize in _binarizers(gated):
                binarize.noise, binarize.soft_share = 0.0, 0.0

    optimizers = [tuned(sgd(gated.backbone_parameters(), config.lr, config), schedule(config))]
    if gated.spm_parameters():
        optimizers.append(spm_optimizer(gated, config, budget.steps or 1))
    return stage_with_term(
        "joint",
        gated,
        task,
        config.joint_epochs,
        optimizers,
        BudgetTerm(budget),
        before_step=harden,
        around=lambda: hashing_restored(gated),
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


@contextmanager
def hashing_restored(gated: GatedNetwork) -> Iterator[None]:
    """Noise and soft share are afterwards what they were."""
    before = [(each, each.noise, each.soft_share) for each in _binarizers(gated)]
    try:
        yield
    finally:
        for each, noise, soft_share in before:
            each.noise, each.soft_share = noise, soft_share


def _binarizers(gated: GatedNetwork) -> list[Binarizer]:
    return [layer.spm.binarize for layer in gated.layers.values()]
