"""Deciding by Q-learning (RNP, D2NN): a layer chooses among a few widths by the value that it expects of each.

A width is the first so many channels. Values are learned from rewards, with no gradient to or from the features; the
SPM's threshold is a price on width, so that calibration moves all layers together.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.batch_slice import draw
from sanp.gating.accounting import mean_kept
from sanp.gating.cost import CostModel, kept_for
from sanp.gating.gating import planned_cost
from sanp.gating.network import GatedNetwork
from sanp.methods.method import GatingMethod
from sanp.methods.parts.retrain import check_reach, epochs_in_parts
from sanp.spm.binarize import Binarizer, top_k
from sanp.spm.module import SPM
from sanp.spm.recording import Gates, decisions_of
from sanp.spm.saliency import Saliency
from sanp.training.controller import BudgetController, IntegralController
from sanp.training.finish import finish
from sanp.training.optimizers import flat, schedule, sgd, tuned
from sanp.training.stage import Stage, steps_in
from sanp.training.task import Task
from sanp.training.term import Contribution, Forward, stage_with_term


@dataclass(frozen=True)
class Choice(Gates):
    """A layer's decisions, with what they came from."""

    values: Tensor
    """Q (N, widths), with its gradient"""
    action: Tensor
    """the width taken in this forward (N,), explored or best"""
    width: Tensor
    """the share of channels that it computes (N,)"""


def first_channels(channels: int, widths: tuple[float, ...]) -> Tensor:
    """0/1 for each width and channel: the first ``round(width C)`` channels, at least one. (widths, C)"""
    counts = [max(1, round(width * channels)) for width in widths]
    return torch.stack([(torch.arange(channels) < count).float() for count in counts])


class BestWidth(Binarizer):
    """1 for the width of highest score: a choice among widths instead of a decision for each channel."""

    def decide(self, score: Tensor) -> Tensor:
        """(N, widths), a single 1 in each row."""
        return top_k(score, 1)

    def margin(self, score: Tensor) -> Tensor:
        """Between the best width and the next."""
        best = score.topk(2, dim=1).values
        return best[:, 0] - best[:, 1]


class ChoosingSPM(SPM):
    """Takes the width of highest value less its price; in training a random one for some of the samples."""

    table: Tensor
    widths: Tensor

    def __init__(self, values: Saliency, channels: int, widths: tuple[float, ...]) -> None:
        super().__init__(values, BestWidth())
        self.register_buffer("table", first_channels(channels, widths))
        self.register_buffer("widths", torch.tensor(widths))
        self.explore = 0.0
        """ε: the share of samples that take a random width in training"""

    def forward(self, x: Tensor) -> Choice:  # (N, C_in, ...)
        """The choice for each sample; the features that are kept are not scaled."""
        values = self.saliency(x.detach())  # (N, widths)
        best = (values.detach() - self.threshold * self.widths).argmax(1)
        action = best
        if self.training and self.explore:
            random = draw(lambda shape: torch.randint(len(self.widths), shape, device=best.device), best.shape)
            coins = draw(lambda shape: torch.rand(shape, device=best.device), best.shape)
            action = torch.where(coins < self.explore, random, best)
        table = self.table.to(values.dtype)
        return Choice(torch.ones_like(table[best]), table[best], table[action], values, action, self.widths[action])

    def score(self, gates: Gates) -> Tensor:
        """Each width's value less its price (N, widths)."""
        assert isinstance(gates, Choice)
        return gates.values - self.threshold * self.widths


def q_values(choices: Mapping[str, Gates]) -> list[Choice]:
    """The choices of a forward, in the order of the layers."""
    return [choice for choice in choices.values() if isinstance(choice, Choice)]


def taken(choice: Choice) -> Tensor:
    """Q of the width that was taken (N,)."""
    return choice.values.gather(1, choice.action[:, None])[:, 0]


@dataclass(frozen=True)
class Episode:
    """One forward as Q-learning sees it: the choices, and what came of them for each sample."""

    choices: list[Choice]
    loss: Tensor
    right: Tensor
    kept: Tensor
    """share of the dense FLOPs that the widths taken compute (N,)"""


Learn = Callable[[Episode, float], Tensor]
"""An episode and the price of computation to the loss of the values."""


class ValueTerm:
    """The loss of the values, at a price of computation that follows the budget."""

    def __init__(self, gated: GatedNetwork, task: Task, learn: Learn, price: IntegralController) -> None:
        self.gated, self.task, self.learn, self.price = gated, task, learn, price

    def contribute(self, forward: Forward) -> Contribution:
        """What Q-learning makes of the forward as an episode."""
        target = self.price.target
        loss = self.learn(_episode(self.gated, self.task, forward), self.price.level)
        self.price.update(mean_kept(self.gated.cost, decisions_of(forward.gates)))
        return Contribution(loss, self.price.running_kept, target, self.price.level)

    def state(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        return self.price.state()

    def restore(self, state: dict[str, float | None]) -> None:
        """Goes on where the state was taken."""
        self.price.restore(state)


def choice_stage(gated: GatedNetwork, task: Task, kept: float, learn: Learn, *, explore: float, lr: float) -> Stage:
    """The network by its task's loss, the values by Q-learning, from the same ε-greedy forward; ε falls to 0.05."""
    epochs = epochs_in_parts(task, 1)[0]
    steps = max(1, epochs * steps_in(task.loader))
    follow = BudgetController(kept, task.controller)
    price = IntegralController(follow, steps, gain=0.2, start=0.0, lowest=0.0, highest=10.0)
    values = list(dict.fromkeys(gated.spm_parameters()))  # a shared part stands in every layer
    optimizers = [
        tuned(sgd(gated.backbone_parameters(), task.config.lr, task.config), schedule(task.config)),
        tuned(torch.optim.AdamW(values, lr=lr, weight_decay=0.0), flat(task.config.rise)),
    ]
    return stage_with_term(
        "joint",
        gated,
        task,
        epochs,
        optimizers,
        ValueTerm(gated, task, learn, price),
        before_step=lambda progress: set_exploring(gated, max(0.05, explore * (1 - progress / 0.7))),
        around=lambda: exploring_ends(gated),
    )


def check_widths(cost: CostModel, kept: float, widths: tuple[float, ...], method: str) -> None:
    """An error for a budget below the cost of the first width everywhere."""
    decisions = {name: first_channels(layer.out_channels, widths[:1]) for name, layer in cost.gates.items()}
    check_reach(mean_kept(cost, decisions), kept, method)


def _episode(gated: GatedNetwork, task: Task, forward: Forward) -> Episode:
    output, y = forward.output, forward.target
    with torch.no_grad():
        applied = {name: gate.applied for name, gate in forward.gates.items()}
        kept = gated.cost.per_sample(applied) / gated.dense_flops
        if task.loss is None:
            loss = F.cross_entropy(output.float(), y, reduction="none")
            right = (output.argmax(1) == y).float()
        else:  # a task of another kind: one number for the batch
            loss = task.task_loss(output, y).expand(len(kept))
            right = torch.exp(-loss)
    return Episode(q_values(forward.gates), loss, right, kept)


def set_exploring(gated: GatedNetwork, share: float) -> None:
    """Sets ε in every layer."""
    for layer in gated.layers.values():
        if isinstance(layer.spm, ChoosingSPM):
            layer.spm.explore = share


@contextmanager
def exploring_ends(gated: GatedNetwork) -> Iterator[None]:
    """No more exploring afterwards."""
    try:
        yield
    finally:
        set_exploring(gated, 0.0)


class ChoiceConfig(Protocol):
    """The settings that Q-learning takes of a method's own."""

    @property
    def explore(self) -> float:
        """ε at the start."""
        ...

    @property
    def lr(self) -> float:
        """Learning rate of the values."""
        ...


@dataclass(frozen=True, kw_only=True)
class ChoosingMethod(GatingMethod):
    """What methods that choose among widths share; one says what its layers' values are, and how they learn."""

    widths: tuple[float, ...]
    """shares of the channels of a layer, the narrowest first"""
    config: ChoiceConfig

    def learn(self, episode: Episode, price: float) -> Tensor:
        """The loss of the values of one episode."""
        raise NotImplementedError

    def check(self, net: nn.Module, task: Task) -> None:
        """The narrowest choice everywhere must not cost more than the budget."""
        cost = planned_cost(net, task.example())
        check_widths(cost, kept_for(task.budget, cost), self.widths, self.name)

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """All epochs jointly, the price following the budget; then the calibration."""
        kept = gated.kept_for(task.budget)
        check_widths(gated.cost, kept, self.widths, self.name)
        yield choice_stage(gated, task, kept, self.learn, explore=self.config.explore, lr=self.config.lr)
        finish(gated, task, kept)
