"""Deciding by Q-learning (RNP, D2NN): a layer chooses among a few widths by the value that it expects of each.

A width is the first so many channels. Values are learned from rewards, with no gradient to or from the features; the
SPM's threshold is a price on width, so that the dial and the calibration move all layers together.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.batch_slice import draw
from sanp.gating.network import GatedNetwork
from sanp.methods.parts.bisection import check_reach
from sanp.spm.module import SPM
from sanp.spm.recording import Gates, record
from sanp.tracing.topology import module_path
from sanp.training.controller import BudgetController
from sanp.training.optimizers import flat, schedule, sgd, tuned
from sanp.training.precision import Format
from sanp.training.stage import Outcome, Stage, steps_in
from sanp.training.task import Task, share_right


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


class ChoosingSPM(SPM):
    """Takes the width of highest value less its price; in training a random one for some of the samples."""

    table: Tensor
    widths: Tensor

    def __init__(self, values: nn.Module, channels: int, widths: tuple[float, ...]) -> None:
        super().__init__(values, nn.Identity())
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
    cost: Tensor
    """of the widths taken, as a share of the dense FLOPs"""


Learn = Callable[[Episode, float], Tensor]
"""An episode and the price of computation to the loss of the values."""


class Price:
    """What a method charges for computation: rises while the cost is above the falling target, falls while below."""

    def __init__(self, controller: BudgetController, steps: int, *, rate: float = 0.2, highest: float = 10.0) -> None:
        self.controller, self.steps, self.rate, self.highest = controller, steps, rate, highest
        self.step = 0
        self.now = 0.0

    @property
    def target(self) -> float:
        """What a step should cost now."""
        return self.controller.target_at(self.step / self.steps)

    def update(self, cost: float) -> None:
        """Takes the cost of one step."""
        self.controller.update(cost, self.step / self.steps)
        self.now = min(self.highest, max(0.0, self.now + self.rate * (cost - self.target)))
        self.step += 1

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"step": self.step, "now": self.now, **self.controller.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where the state was taken."""
        self.step, self.now = int(state["step"]), float(state["now"])
        self.controller.restore(state)


def choice_stage(gated: GatedNetwork, task: Task, epochs: int, learn: Learn, *, explore: float, lr: float) -> Stage:
    """The network by its task's loss, the values by Q-learning, from the same ε-greedy forward; ε falls to 0.05."""
    steps = max(1, epochs * steps_in(task.loader))
    share = gated.share(task.budget)
    check_reach(narrowest(gated), share, gated.origin.method)
    price = Price(BudgetController(share, task.controller), steps)
    if task.teacher is not None:
        Format(task.teacher, task.config.precision)

    def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
        set_exploring(gated, max(0.05, explore * (1 - progress / 0.7)))
        with record(gated) as gates:
            output = gated(x)
        loss = task.loss_with_teacher(x, output, y)
        target = price.target
        total = loss + learn(_episode(gated, gates, task, output, y), price.now)
        decisions = {name: gate.decision for name, gate in gates.items()}
        price.update(float(gated.cost.per_sample(decisions).mean()) / gated.dense_flops)
        right = share_right(output, y)
        return Outcome(total, right, price.controller.running_cost, target, price.now, shown=loss.item())

    values = list(dict.fromkeys(gated.spm_parameters()))  # a shared part stands in every layer
    optimizers = [
        tuned(sgd(gated.backbone_parameters(), task.config.lr, task.config), schedule(task.config)),
        tuned(torch.optim.AdamW(values, lr=lr, weight_decay=0.0), flat(task.config.rise)),
    ]
    format = Format(gated, task.config.precision)
    return Stage(
        "joint",
        gated,
        task.loader,
        epochs,
        step_loss,
        optimizers,
        format,
        around=lambda: exploring_ends(gated),
        also=price,
    )


def narrowest(gated: GatedNetwork) -> float:
    """The cost with the first width everywhere, as a share of the dense FLOPs."""
    tables = {name: gated.layers[module_path(name)].spm for name in gated.cost.gates}
    decisions = {name: spm.table[:1] for name, spm in tables.items() if isinstance(spm, ChoosingSPM)}
    return float(gated.cost.per_sample(decisions)) / gated.dense_flops


def _episode(gated: GatedNetwork, gates: Mapping[str, Gates], task: Task, output: Any, y: Any) -> Episode:
    with torch.no_grad():
        applied = {name: gate.applied for name, gate in gates.items()}
        cost = gated.cost.per_sample(applied) / gated.dense_flops
        if task.loss is None:
            loss = F.cross_entropy(output.float(), y, reduction="none")
            right = (output.argmax(1) == y).float()
        else:  # a task of another kind: one number for the batch
            loss = task.task_loss(output, y).expand(len(cost))
            right = torch.exp(-loss)
    return Episode(q_values(gates), loss, right, cost)


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
