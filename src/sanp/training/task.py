"""A task: what every method gets to train with, that is data, budget, settings, loss and teacher."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from sanp.core.checks import check_kind
from sanp.spm.module import SPMConfig
from sanp.training.budget import ObjectiveConfig
from sanp.training.config import FitConfig
from sanp.training.controller import ControllerConfig
from sanp.training.stage import Loader

TaskLoss = Callable[[Any, Any], Tensor]
"""Computes a loss from the network's output and the target."""


TASK_SETTINGS = {"config": FitConfig, "spm": SPMConfig, "objective": ObjectiveConfig, "controller": ControllerConfig}


@dataclass(frozen=True, kw_only=True)
class Task:
    """Data, budget, settings, loss and teacher for a pruning method."""

    loader: Loader
    """batches of (input, target) to train on"""
    budget: object
    """a share of the dense FLOPs, a count of them, or a time"""
    config: FitConfig = field(default_factory=FitConfig)
    spm: SPMConfig = field(default_factory=SPMConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    loss: TaskLoss | None = None
    """computes the loss from output and target; cross entropy if None"""
    teacher: nn.Module | None = None
    """the network to distill from; if None, the network as it is before pruning"""

    def __post_init__(self) -> None:
        for name, kind in TASK_SETTINGS.items():
            check_kind(name, getattr(self, name), kind, f"a sanp.{kind.__name__}")
        check_kind("loss", self.loss, Callable | None, "a function of output and target")
        check_kind("teacher", self.teacher, nn.Module | None, "a network")

    def example(self) -> Tensor:
        """The first image of the loader, as a batch of one."""
        x: Tensor = next(iter(self.loader))[0][:1]
        return x

    def task_loss(self, output: Any, target: Any) -> Tensor:
        """The loss of the task, without distillation and penalties."""
        if self.loss is not None:
            return self.loss(output, target)
        return F.cross_entropy(output.float(), target, label_smoothing=self.config.label_smoothing)

    def loss_with_teacher(self, x: Tensor, output: Any, target: Any) -> Tensor:
        """The task's loss, mixed with the distillation loss by the share ``config.distill``.

        ``x`` is the input, ``output`` the network's output for it and ``target`` the target.
        """
        loss = self.task_loss(output, target)
        share = self.config.distill
        if self.teacher is None or not share:
            return loss
        with torch.no_grad():
            wanted = self.teacher(x)
        return (1 - share) * loss + share * distillation(output, wanted, self.config.temperature)


def with_teacher(task: Task, net: nn.Module) -> Task:
    """The task with a frozen copy of ``net`` as the teacher, if it distills and has no teacher yet."""
    if task.teacher is not None or not task.config.distill:
        return task
    teacher = copy.deepcopy(net).eval().requires_grad_(False)
    return replace(task, teacher=teacher)


def distillation(output: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """The distillation loss T² KL(teacher, student) at the temperature T (Hinton et al., 2015).

    ``output`` are the logits of the network, ``wanted`` those of the teacher, (N, classes) each.
    """
    student = F.log_softmax(output.float() / temperature, 1)
    teacher = F.log_softmax(wanted.float() / temperature, 1)
    return temperature**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def share_right(output: Any, y: Any) -> float | None:
    """The share of a batch that is classified correctly; None if this is not a classification."""
    if not (isinstance(output, Tensor) and isinstance(y, Tensor) and output.dim() == 2 and y.dim() == 1):
        return None
    return float((output.argmax(1) == y).float().mean())


def set_dropout(net: nn.Module, rate: float | None) -> None:
    """Sets the rate of every dropout layer of ``net``; None leaves them as they are."""
    for module in net.modules():
        if rate is not None and isinstance(module, _DropoutNd):
            module.p = rate
