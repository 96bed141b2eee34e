"""What a method is given: the data, the budget, every setting, and the network to distill from."""

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


def with_teacher(task: Task, net: nn.Module) -> Task:
    """The task with a frozen copy of ``net`` to distill from, where it wants one and has none."""
    if task.teacher is not None or not task.config.distill:
        return task
    teacher = copy.deepcopy(net).eval().requires_grad_(False)
    return replace(task, teacher=teacher)


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


def set_dropout(net: nn.Module, rate: float | None) -> None:
    """Gives every dropout layer this rate; none leaves them as they are."""
    for module in net.modules():
        if rate is not None and isinstance(module, _DropoutNd):
            module.p = rate
