"""The paper's three stages (4.1.2): pretrain the network, warm up the SPMs with frozen kernels, train both jointly.

A method is a generator of stages. The caller runs each stage that it yields; between two stages the method changes the
network, for example inserts SPMs or moves thresholds. So the caller can show, save, stop and resume the training of any
method.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.conv import _ConvNd

from sanp.core.errors import SanpError
from sanp.gating.accounting import mean_kept
from sanp.gating.amount import parse_budget
from sanp.gating.budget_range import check_reachable
from sanp.gating.network import GatedNetwork
from sanp.spm.binarize import Binarizer
from sanp.spm.recording import decisions_of
from sanp.training.budget import Budget
from sanp.training.finish import finish, finish_range
from sanp.training.image_size import growing
from sanp.training.optimizers import joint_optimizers, schedule, scheduled, sgd, spm_optimizer
from sanp.training.stage import Stage, Stages, steps_in
from sanp.training.task import Task, Timer, set_dropout, warn_if_forgotten, with_teacher
from sanp.training.term import Contribution, Forward, stage_with_term

RETIMED = 0.6
"""share of the joint stage after which a budget that is a time is measured again"""


def fit_stages(gated: GatedNetwork, task: Task) -> Stages:
    """The stages of SANP for a network that is gated already: warm-up and joint training; then the thresholds are
    calibrated."""
    if not isinstance(gated, GatedNetwork):
        raise SanpError(f"{type(gated).__name__} is not gated: give fit what sanp.gate returned")
    steps = max(1, task.config.joint_epochs * steps_in(task.loader))
    check_reachable(
        task.budget, gated.cost, gated.latency, task.max_flops
    )  # an impossible one is an error before any training
    task = with_teacher(task, gated)
    set_dropout(gated, task.config.dropout)
    if gated.spm_parameters() and task.config.warmup_epochs and task.start is None:
        yield warmup_stage(gated, task)
    budget = Budget(gated, task.budget, objective=task.objective, controller=task.controller, steps=steps)
    yield joint_stage(gated, task, budget)
    if budget.range is not None:
        finish_range(gated, task)
    else:
        finish(gated, task, budget.goal)
    warn_if_forgotten(gated, task)
    return gated


def pretrain_stage(net: nn.Module, task: Task) -> Stage:
    """Stage one: trains the dense network ``net`` with the task's loss."""
    config = task.config
    optimizers = [scheduled(sgd(list(net.parameters()), config.pretrain_lr, config), schedule(config))]
    resize = None if config.pretrain_size == 1 else growing(config.pretrain_size)
    return stage_with_term("pretrain", net, task, config.pretrain_epochs, optimizers, distill=False, prepare=resize)


class WarmUpTerm:
    """The term of the warm-up: adds no loss (λ = 0), and reports the share of the FLOPs that is computed."""

    def __init__(self, gated: GatedNetwork) -> None:
        self.gated = gated

    def contribute(self, forward: Forward) -> Contribution:
        """No loss; the share of the dense FLOPs that was computed, and the target 1."""
        kept = mean_kept(self.gated.cost, decisions_of(forward.gates))
        return Contribution(None, kept, 1.0, 0.0)


def warmup_stage(gated: GatedNetwork, task: Task) -> Stage:
    """Stage two: trains the SPMs with the task's loss and λ = 0; the kernels, or all other parameters, are frozen."""
    config = task.config
    optimizers = [spm_optimizer(gated, config, config.joint_epochs * steps_in(task.loader))]
    still = gated.backbone_parameters()
    if config.warmup_trains == "all but kernels":
        kernels = {id(parameter) for parameter in kernels_of(gated)}
        optimizers.append(
            scheduled(sgd([p for p in still if id(p) not in kernels], config.lr, config), schedule(config))
        )
        still = [parameter for parameter in still if id(parameter) in kernels]
    return stage_with_term(
        "warm-up",
        gated,
        task,
        config.warmup_epochs,
        optimizers,
        WarmUpTerm(gated),
        distill=False,
        around=lambda: frozen(still),
    )


def kernels_of(gated: GatedNetwork) -> list[nn.Parameter]:
    """The kernels and biases of all convolutions."""
    convolutions = [module for module in gated.net.modules() if isinstance(module, _ConvNd)]
    return [parameter for module in convolutions for parameter in module.parameters()]


class BudgetTerm:
    """The cost loss (eq. 9 and 10) as a term of a stage."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def contribute(self, forward: Forward) -> Contribution:
        """The cost loss of one step; λ is updated."""
        loss = self.budget.loss(forward.gates)
        return Contribution(loss, self.budget.running_kept, self.budget.target, self.budget.cost_weight)

    def state(self) -> dict[str, float | None]:
        """The state that a checkpoint keeps."""
        return self.budget.state()

    def restore(self, state: dict[str, float | None]) -> None:
        """Restores a state that :meth:`state` returned."""
        self.budget.restore(state)


def joint_stage(gated: GatedNetwork, task: Task, budget: Budget) -> Stage:
    """Stage three: trains all parameters with the multi-task loss (eq. 9), whose λ follows the budget (eq. 10)."""
    config = task.config
    hard_from = 0.0 if config.settle is None else 1 - config.settle

    def prepare(progress: float) -> None:
        if task.timer is not None and progress >= RETIMED and budget.range is None and not task.timer.repeated:
            aim_again(gated, task.timer, task.budget, budget)
        if progress >= hard_from:
            for binarize in _binarizers(gated):
                binarize.noise, binarize.soft_share = 0.0, 0.0

    rates = schedule(config) if budget.range is None else budget.range.slowed(schedule(config))
    return stage_with_term(
        "joint",
        gated,
        task,
        config.joint_epochs,
        joint_optimizers(gated, config, budget.steps or 1, rates),
        BudgetTerm(budget),
        before_step=prepare,
        around=lambda: hashing_restored(gated),
    )


def aim_again(gated: GatedNetwork, timer: Timer, given: object, budget: Budget) -> None:
    """Measures what the budget ``given``, a time, is of the FLOPs of the network as training has made it so far."""
    table = timer(gated, again=True)
    if table.points[0][1] <= parse_budget(given).value:  # else what was measured first stays
        gated.latency = table
        budget.aim(gated, gated.kept_for(given))


@contextmanager
def frozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Inside, these parameters get no gradient."""
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
    """Restores the noise and the share of soft gates of all layers afterwards."""
    before = [(each, each.noise, each.soft_share) for each in _binarizers(gated)]
    try:
        yield
    finally:
        for each, noise, soft_share in before:
            each.noise, each.soft_share = noise, soft_share


def _binarizers(gated: GatedNetwork) -> list[Binarizer]:
    return [layer.spm.binarize for layer in gated.layers.values()]
