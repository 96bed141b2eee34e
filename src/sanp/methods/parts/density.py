"""The same share of channels in every layer: the winners of each image, and the density whose cost is the budget."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.distributed import same_everywhere
from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import move_thresholds
from sanp.methods.parts.bisection import find_level
from sanp.methods.parts.retrain import finish_norms
from sanp.spm.binarize import TopK, top_k
from sanp.spm.recording import Gates, record
from sanp.tracing.topology import module_path
from sanp.training.optimizers import schedule, sgd, spm_optimizer, tuned
from sanp.training.precision import Format
from sanp.training.stage import Outcome, Stage, steps_in
from sanp.training.task import Task, share_right

EVERY = 10
"""steps between two looks at what density the target needs"""
SAMPLES = 32
"""images of a batch to look at: unions at additions vary little between images"""
CALIBRATE = 64
"""training images to set the density on at the end"""


class Winners(TopK):
    """The k most salient channels of each sample, k kept as a number of the network's state."""

    kept: Tensor

    def __init__(self, channels: int, *, round_up: bool = False) -> None:
        nn.Module.__init__(self)
        self.channels, self.round_up = channels, round_up
        self.register_buffer("kept", torch.tensor(channels))

    @property
    def density(self) -> float:
        """The share of channels that is kept."""
        return int(self.kept) / self.channels

    @density.setter
    def density(self, density: float) -> None:
        self.kept.fill_(self.count(density))

    def count(self, density: float) -> int:
        """How many channels a density means: the nearest number, or the next above."""
        wanted = density * self.channels
        whole = math.ceil(wanted - 1e-9) if self.round_up else round(wanted)
        return min(self.channels, max(1, whole))

    def forward(self, saliency: Tensor) -> Tensor:  # (N, C_out) -> (N, C_out)
        """1 for the winners, 0 for the others; among equals exactly as many as there is room for."""
        return top_k(saliency, int(self.kept))


def winners(gated: GatedNetwork) -> dict[str, Winners]:
    """The binarizers of all layers that have winners."""
    found = {name: layer.spm.binarize for name, layer in gated.layers.items()}
    return {name: binarize for name, binarize in found.items() if isinstance(binarize, Winners)}


def set_density(gated: GatedNetwork, density: float) -> None:
    """One density for every layer."""
    for each in winners(gated).values():
        each.density = density


class DensityTerm:
    """Follows a falling target: every few steps, the density whose cost on the batch's own saliencies is the target."""

    def __init__(self, gated: GatedNetwork, share: float, steps: int, target_at: Callable[[float], float]) -> None:
        self.gated, self.share, self.steps, self.target_at = gated, share, steps, target_at
        self.step = 0
        self.density = 1.0
        self.cost = 1.0

    @property
    def target(self) -> float:
        """What the next step should cost, as a share of the dense FLOPs."""
        return self.target_at(self.step / self.steps)

    def update(self, gates: Mapping[str, Gates]) -> None:
        """Takes what was decided in one step, and sets the density for the next ones."""
        cost = self.gated.cost
        self.cost = float(cost.per_sample({name: gate.decision for name, gate in gates.items()}).mean())
        self.cost /= self.gated.dense_flops
        self.step += 1
        if self.step % EVERY == 1:
            saliencies = {name: gate.saliency.detach()[:SAMPLES] for name, gate in gates.items()}
            self.density = find_level(
                lambda density: cost_of(self.gated, saliencies, density), self.target, 1.0, 0.0, steps=14
            )
            set_density(self.gated, self.density)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; the numbers of winners stand in the network itself."""
        return {"step": self.step, "density": self.density, "cost": self.cost}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where the state was taken."""
        self.step, self.density, self.cost = int(state["step"]), float(state["density"]), float(state["cost"])


def cost_of(gated: GatedNetwork, saliencies: Mapping[str, Tensor], density: float) -> float:
    """The mean share of the dense FLOPs if the winners among these saliencies were so dense."""
    of = winners(gated)
    decisions = {}
    for name, saliency in saliencies.items():
        each, group = of[module_path(name)], gated.layers[module_path(name)].spm.group
        score = saliency.reshape(len(saliency), -1, group).mean(2)
        decisions[name] = top_k(score, each.count(density)).repeat_interleave(group, dim=1)
    return float(gated.cost.per_sample(decisions).mean()) / gated.dense_flops


def density_stage(
    gated: GatedNetwork,
    task: Task,
    epochs: int,
    target_at: Callable[[float], float],
    extra: Callable[[Mapping[str, Gates]], Tensor] | None = None,
) -> Stage:
    """Trains everything while the density follows the target; no cost loss."""
    share = gated.share(task.budget)
    steps = max(1, epochs * steps_in(task.loader))
    term = DensityTerm(gated, share, steps, target_at)
    if task.teacher is not None:
        Format(task.teacher, task.config.precision)

    def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
        with record(gated) as gates:
            output = gated(x)
        loss = task.loss_with_teacher(x, output, y)
        total = loss if extra is None else loss + extra(gates)
        target = term.target
        term.update(gates)
        return Outcome(total, share_right(output, y), term.cost, target, 0.0, shown=loss.item())

    optimizers = [
        tuned(sgd(gated.backbone_parameters(), task.config.lr, task.config), schedule(task.config)),
        spm_optimizer(gated, task.config, steps),
    ]
    format = Format(gated, task.config.precision)
    return Stage("joint", gated, task.loader, epochs, step_loss, optimizers, format, also=term)


def finish_density(gated: GatedNetwork, task: Task, share: float) -> None:
    """After the last step: batch norm statistics, then the density whose mean cost on training images is the share."""
    finish_norms(gated, task)
    format = Format(gated, task.config.precision)
    batches: list[Tensor] = []
    for x, _ in task.loader:
        batches.append(format.place(x))
        if sum(map(len, batches)) >= CALIBRATE:
            break
    with format.autocast():
        move_thresholds(gated, share, batches)
    same_everywhere(gated)
