"""How a learning rate moves over a stage: a factor of its peak, as a function of the share of the steps done."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from sanp.gating.network import GatedNetwork
from sanp.spm.module import closing_rate
from sanp.training.config import FitConfig

Schedule = Callable[[float, int], float]
"""Share of the stage's steps done, and the epoch, to a factor."""


def cosine(rise: float) -> Schedule:
    """Up in a straight line over the first ``rise`` of the steps, then down a half cosine to zero."""

    def factor(progress: float, epoch: int) -> float:
        if progress < rise:
            return max(progress / rise, 0.01)
        return max(0.5 * (1 + math.cos(math.pi * (progress - rise) / (1 - rise))), 0.002)

    return factor


def flat(rise: float, fall: float = 0.2) -> Schedule:
    """Up over the first ``rise`` of the steps, level, and down over the last ``fall`` of them."""

    def factor(progress: float, epoch: int) -> float:
        return max(min(1.0, progress / rise if rise else 1.0, (1 - progress) / fall), 0.01)

    return factor


def step(every: int) -> Schedule:
    """PAPER 4.1.2: a tenth after every so many epochs."""

    def factor(progress: float, epoch: int) -> float:
        return float(0.1 ** (epoch // every))

    return factor


@dataclass
class Tuned:
    """An optimizer and the schedule of its learning rate."""

    optimizer: torch.optim.Optimizer
    schedule: Schedule

    def set(self, progress: float, epoch: int) -> None:
        """Sets the learning rate for this point of the stage."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.schedule(progress, epoch)


def tuned(optimizer: torch.optim.Optimizer, schedule: Schedule) -> Tuned:
    """The pair, with the peak learning rates remembered."""
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return Tuned(optimizer, schedule)


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
