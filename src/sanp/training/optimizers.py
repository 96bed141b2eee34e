"""The optimizers of a stage, and how their learning rates change over it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from sanp.gating.network import GatedNetwork
from sanp.spm.module import closing_rate
from sanp.training.config import FitConfig

Schedule = Callable[[float, int], float]
"""Computes the factor on the peak learning rate from the share of the stage's steps that is done and the epoch."""


def cosine(rise: float) -> Schedule:
    """A linear rise over the share ``rise`` of the steps, then half a cosine down to almost 0."""

    def factor(progress: float, epoch: int) -> float:
        if progress < rise:
            return max(progress / rise, 0.01)
        return max(0.5 * (1 + math.cos(math.pi * (progress - rise) / (1 - rise))), 0.002)

    return factor


def flat(rise: float, fall: float = 0.2) -> Schedule:
    """A linear rise over the share ``rise`` of the steps, a constant rate, and a linear fall over the last ``fall``."""

    def factor(progress: float, epoch: int) -> float:
        return max(min(1.0, progress / rise if rise else 1.0, (1 - progress) / fall), 0.01)

    return factor


def step(every: int) -> Schedule:
    """PAPER 4.1.2: divides the learning rate by 10 after every ``every`` epochs."""

    def factor(progress: float, epoch: int) -> float:
        return float(0.1 ** (epoch // every))

    return factor


@dataclass
class Scheduled:
    """An optimizer and the schedule of its learning rate."""

    optimizer: torch.optim.Optimizer
    schedule: Schedule

    def set(self, progress: float, epoch: int) -> None:
        """Sets the learning rate; ``progress`` is the share of the stage's steps that is done."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.schedule(progress, epoch)


def scheduled(optimizer: torch.optim.Optimizer, schedule: Schedule) -> Scheduled:
    """The optimizer with a schedule; its present learning rates are the peak ones."""
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return Scheduled(optimizer, schedule)


def schedule(config: FitConfig) -> Schedule:
    """The schedule of the network's own parameters, as configured."""
    return cosine(config.rise) if config.schedule == "cosine" else step(config.step_epochs)


def sgd(parameters: list[nn.Parameter], lr: float, config: FitConfig) -> torch.optim.Optimizer:
    """SGD for these parameters with the peak learning rate ``lr`` and the configured momentum and weight decay."""
    return torch.optim.SGD(
        parameters, lr=lr, momentum=config.momentum, nesterov=config.nesterov, weight_decay=config.weight_decay
    )


def spm_optimizer(gated: GatedNetwork, config: FitConfig, steps: int) -> Scheduled:
    """The optimizer of the SPMs: AdamW without weight decay at a constant rate, or SGD as for the network.

    ``steps`` is the number of steps in which channels must be able to close; it sets the learning rate if
    ``config.spm_lr`` is None.
    """
    lr = config.spm_lr or closing_rate(steps)
    if config.spm_optimizer == "sgd":
        return scheduled(sgd(gated.spm_parameters(), lr, config), schedule(config))
    adam = torch.optim.AdamW(gated.spm_parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0)
    return scheduled(adam, flat(config.rise))


def joint_optimizers(
    gated: GatedNetwork, config: FitConfig, steps: int, rates: Schedule | None = None
) -> list[Scheduled]:
    """SGD for the network's own parameters, and :func:`spm_optimizer` for its SPMs if these have parameters.

    ``steps`` is the number of steps in which channels must be able to close. ``rates`` is the schedule of SGD; without
    it, it is the configured one.
    """
    own = scheduled(sgd(gated.backbone_parameters(), config.lr, config), rates or schedule(config))
    return [own, spm_optimizer(gated, config, steps)] if gated.spm_parameters() else [own]
