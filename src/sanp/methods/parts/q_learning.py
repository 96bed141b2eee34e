"""Decisions by Q-learning (RNP, D2NN): each layer chooses one of a few widths, by the value that it predicts for each.

A width is a share of the channels; the first channels of the layer are run. Values are learned from rewards, with no
gradient to or from the features. The SPM's threshold is a price of width, so that thresholds can be calibrated as
usual.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.gating.accounting import mean_kept
from sanp.gating.cost import CostModel, kept_for
from sanp.gating.gating import planned_cost
from sanp.gating.network import GatedNetwork
from sanp.methods.parts.chosen_width import ChoosingSPM, ChosenWidth, first_channels
from sanp.methods.parts.gating_method import GatingMethod
from sanp.methods.parts.retrain import check_reach, epochs_in_parts
from sanp.spm.recording import Gates, applied_of, decisions_of
from sanp.training.controller import BudgetController, IntegralController
from sanp.training.finish import finish
from sanp.training.optimizers import flat, schedule, scheduled, sgd
from sanp.training.stage import Stage, steps_in
from sanp.training.task import Task
from sanp.training.term import Contribution, Forward, stage_with_term


def choices_of(choices: Mapping[str, Gates]) -> list[ChosenWidth]:
    """The choices among the gates of a forward, in the order of the layers."""
    return [choice for choice in choices.values() if isinstance(choice, ChosenWidth)]


def taken(choice: ChosenWidth) -> Tensor:
    """Q of the width that was chosen (N,)."""
    return choice.values.gather(1, choice.action[:, None])[:, 0]


@dataclass(frozen=True)
class Episode:
    """One forward as an episode of Q-learning: the choices, and their result for each sample."""

    choices: list[ChosenWidth]
    """of the layers, in order"""
    loss: Tensor
    """(N,): the task's loss of each sample"""
    right: Tensor
    """(N,): 1 for a sample that is classified correctly, else 0; exp(-loss) for other tasks"""
    kept: Tensor
    """(N,): share of the dense FLOPs that the chosen widths compute"""


Learn = Callable[[Episode, float], Tensor]
"""Computes the loss of the predicted values from an episode and the price of computation."""


class ValueTerm:
    """Adds the loss of the predicted values to the task's loss, at a price of computation that follows the budget.

    ``learn`` computes that loss; the level of ``price`` is the price.
    """

    def __init__(self, gated: GatedNetwork, task: Task, learn: Learn, price: IntegralController) -> None:
        self.gated, self.task, self.learn, self.price = gated, task, learn, price

    def contribute(self, forward: Forward) -> Contribution:
        """The loss of the values in this forward; the price is set for the next one."""
        target = self.price.target
        loss = self.learn(_episode(self.gated, self.task, forward), self.price.level)
        self.price.update(mean_kept(self.gated.cost, decisions_of(forward.gates)))
        return Contribution(loss, self.price.running_kept, target, self.price.level)

    def state(self) -> dict[str, float | None]:
        """The state that a checkpoint keeps."""
        return self.price.state()

    def restore(self, state: dict[str, float | None]) -> None:
        """Restores a state that :meth:`state` returned."""
        self.price.restore(state)


def choice_stage(gated: GatedNetwork, task: Task, kept: float, learn: Learn, *, explore: float, lr: float) -> Stage:
    """A stage that trains the network with the task's loss and the values by Q-learning, from the same forward.

    ``kept`` is the budget as a share of the dense FLOPs. ``learn`` computes the loss of the values. ``explore`` is ε at
    the start, which falls to 0.05. ``lr`` is the learning rate of the values.
    """
    epochs = epochs_in_parts(task, 1)[0]
    steps = max(1, epochs * steps_in(task.loader))
    follow = BudgetController(kept, task.controller)
    price = IntegralController(follow, steps, gain=0.2, start=0.0, lowest=0.0, highest=10.0)
    values = list(dict.fromkeys(gated.spm_parameters()))  # parts that layers share are listed repeatedly
    optimizers = [
        scheduled(sgd(gated.backbone_parameters(), task.config.lr, task.config), schedule(task.config)),
        scheduled(torch.optim.AdamW(values, lr=lr, weight_decay=0.0), flat(task.config.rise)),
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
    """Raises an error if the first of ``widths`` in every layer already exceeds the budget ``kept``.

    ``method`` is the method's name.
    """
    decisions = {name: first_channels(layer.out_channels, widths[:1]) for name, layer in cost.gates.items()}
    check_reach(mean_kept(cost, decisions), kept, method)


def _episode(gated: GatedNetwork, task: Task, forward: Forward) -> Episode:
    output, y = forward.output, forward.target
    with torch.no_grad():
        kept = gated.cost.per_sample(applied_of(forward.gates)) / gated.dense_flops
        if task.loss is None:
            loss = F.cross_entropy(output.float(), y, reduction="none")
            right = (output.argmax(1) == y).float()
        else:  # a task with a loss of its own, which is one number for the batch
            loss = task.task_loss(output, y).expand(len(kept))
            right = torch.exp(-loss)
    return Episode(choices_of(forward.gates), loss, right, kept)


def set_exploring(gated: GatedNetwork, share: float) -> None:
    """Sets ε, the share of the samples that take a random width, in every layer."""
    for layer in gated.layers.values():
        if isinstance(layer.spm, ChoosingSPM):
            layer.spm.explore = share


@contextmanager
def exploring_ends(gated: GatedNetwork) -> Iterator[None]:
    """Sets ε to 0 afterwards."""
    try:
        yield
    finally:
        set_exploring(gated, 0.0)


class ChoiceConfig(Protocol):
    """The settings that every method with Q-learning has."""

    @property
    def explore(self) -> float:
        """ε at the start."""
        ...

    @property
    def lr(self) -> float:
        """The learning rate of the values."""
        ...


@dataclass(frozen=True, kw_only=True)
class ChoosingMethod(GatingMethod):
    """Base of the methods that choose among widths; each says how values are predicted and how they learn."""

    widths: tuple[float, ...]
    """shares of the channels of a layer to choose from, in ascending order"""
    config: ChoiceConfig

    def learn(self, episode: Episode, price: float) -> Tensor:
        """The loss of the predicted values in one episode; ``price`` is the price of computation."""
        raise NotImplementedError

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if the smallest width in every layer already exceeds the budget."""
        cost = planned_cost(net, task.example(net))
        check_widths(cost, kept_for(task.budget, cost), self.widths, self.name)

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """Trains network and values for all epochs, while the price follows the budget; then calibrates."""
        kept = gated.kept_for(task.budget)
        check_widths(gated.cost, kept, self.widths, self.name)
        yield choice_stage(gated, task, kept, self.learn, explore=self.config.explore, lr=self.config.lr)
        finish(gated, task, kept)
