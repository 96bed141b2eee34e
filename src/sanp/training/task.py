"""A task: what every method gets to train with, that is data, budget, settings, loss and teacher."""

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from sanp.core import distributed
from sanp.core.batch_checks import described
from sanp.core.checks import check_kind
from sanp.core.errors import ForgottenWarning, SanpError, TeacherWarning
from sanp.core.modules import evaluating, placed_for
from sanp.core.outputs import logits_of
from sanp.gating.amount import LatencyTable
from sanp.gating.network import GatedNetwork
from sanp.spm.module import SPMConfig
from sanp.training.budget import ObjectiveConfig
from sanp.training.config import FitConfig
from sanp.training.controller import ControllerConfig
from sanp.training.distillation import DistillLoss, default_distill_loss
from sanp.training.stage import Loader
from sanp.training.teacher import LEAST, MUCH, knowledge

TaskLoss = Callable[[Any, Any], Tensor]
"""Computes a loss from the network's output and the target."""


TASK_SETTINGS = {"config": FitConfig, "spm": SPMConfig, "objective": ObjectiveConfig, "controller": ControllerConfig}


class Timer(Protocol):
    """Measures what shares of a gated network's FLOPs take on this machine."""

    repeated: bool
    """whether it has measured again"""

    def __call__(self, gated: GatedNetwork, *, again: bool = False) -> LatencyTable:
        """The table; the one that was measured first, unless ``again`` says to measure a new one."""
        ...


@dataclass(frozen=True, kw_only=True)
class Task:
    """Data, budget, settings, loss and teacher for a pruning method."""

    loader: Loader
    """batches of (input, target) to train on"""
    budget: object
    """a share of the dense FLOPs, a count of them, or a time; or a range of them"""
    max_flops: object = None
    """what no image may cost more than, a share or a count; None: there is no cap"""
    config: FitConfig = field(default_factory=FitConfig)
    spm: SPMConfig = field(default_factory=SPMConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    loss: TaskLoss | None = None
    """computes the loss from output and target; cross entropy if None"""
    teacher: nn.Module | None = None
    """the network to distill from; if None, the network as it is before pruning"""
    distill_loss: DistillLoss | None = None
    """computes the distillation loss from output and teacher's output; if None, by the kind of output"""
    timer: Timer | None = None
    """measures what a share of the FLOPs takes, for a budget that is a time; None: the network has its table, if any"""
    start: GatedNetwork | None = None
    """a trained gated network to go on from, if the method gates; None: the dense network is gated"""

    def __post_init__(self) -> None:
        for name, kind in TASK_SETTINGS.items():
            check_kind(name, getattr(self, name), kind, f"a sanp.{kind.__name__}")
        check_kind("loss", self.loss, Callable | None, "a function of output and target")
        check_kind("teacher", self.teacher, nn.Module | None, "a network")
        check_kind("distill_loss", self.distill_loss, Callable | None, "a function of two outputs")

    def example(self, net: nn.Module) -> Tensor:
        """The first image of the loader, as a batch of one, on the device of ``net``."""
        x: Tensor = placed_for(net, next(iter(self.loader))[0][:1])
        return x

    def task_loss(self, output: Any, target: Any) -> Tensor:
        """The loss of the task, without distillation and penalties."""
        if self.loss is not None:
            return self.loss(output, target)
        logits = logits_of(output)
        if not isinstance(logits, Tensor):
            raise SanpError(
                f"the network gives {described(output)}, and cross entropy takes logits (N, classes), alone, called "
                "logits, or first of a tuple: give fit a loss of your own, a function of output and target"
            )
        return F.cross_entropy(logits.float(), target, label_smoothing=self.config.label_smoothing)

    def loss_with_teacher(self, x: Tensor, output: Any, target: Any) -> Tensor:
        """The task's loss, mixed with the distillation loss by the share ``config.distill``.

        ``x`` is the input, ``output`` the network's output for it and ``target`` the target.
        """
        loss = self.task_loss(output, target)
        share = self.config.distill
        if self.teacher is None or not share:
            return loss
        with torch.no_grad(), evaluating(self.teacher) if self.teacher.training else nullcontext():
            wanted = self.teacher(x)
        return (1 - share) * loss + share * self.loss_to(wanted, output, target)

    def loss_to(self, wanted: Any, output: Any, target: Any) -> Tensor:
        """The distillation loss: how far ``output`` is from what another network gives, ``wanted``."""
        if self.distill_loss is not None:
            return self.distill_loss(output, wanted)
        own = self.loss is not None
        return default_distill_loss(output, wanted, target, self.config.temperature, own_loss=own)

    def without_teacher(self) -> "Task":
        """The same task without distillation."""
        return replace(self, teacher=None, config=replace(self.config, distill=0.0))


def with_teacher(task: Task, net: nn.Module) -> Task:
    """The task with a frozen copy of ``net`` as the teacher, if it distills and has no teacher yet.

    A network that knows nothing, such as an untrained one, is no teacher: then the task is without distillation.
    """
    if task.teacher is not None or not task.config.distill:
        return task
    teacher = copy.deepcopy(net).eval().requires_grad_(False)
    return with_checked_teacher(replace(task, teacher=teacher), "the network as it was given")


def with_checked_teacher(task: Task, what: str = "the given teacher") -> Task:
    """The task, or if its teacher knows nothing, a warning that names it as ``what``, and the task without it."""
    if task.teacher is None or not task.config.distill:
        return task
    known = knowledge(task.teacher, task.loader, task.task_loss)
    if known is None or known >= LEAST:
        return task
    if distributed.rank() == 0:
        warnings.warn(
            f"{what} would be the teacher, but its loss on the first batches is only {max(0.0, known):.0%} lower than "
            "with its answers given to other images: it knows next to nothing, and training goes on without "
            "distillation. Train it first with sanp.pretrain(net, loader), or give another teacher",
            TeacherWarning,
            stacklevel=2,
        )
    return task.without_teacher()


def warn_if_forgotten(network: nn.Module, task: Task) -> None:
    """A warning if a network whose teacher knows much knows next to nothing after training."""
    if task.teacher is None:
        return
    after = knowledge(network, task.loader, task.task_loss)
    if after is None or after >= LEAST / 2:
        return
    before = knowledge(task.teacher, task.loader, task.task_loss)
    if before is None or before < MUCH or distributed.rank() != 0:
        return
    warnings.warn(
        f"training took what the network knew: its loss is {max(0.0, after):.0%} lower for the right images "
        f"than with its answers given to other images, and was {before:.0%} lower before. Lower the learning rate "
        f"(lr={task.config.lr:g} now), train for more epochs, or give a larger budget",
        ForgottenWarning,
        stacklevel=2,
    )


def share_right(output: Any, y: Any) -> float | None:
    """The share of a batch that is classified correctly; None if this is not a classification."""
    output = logits_of(output)
    if not (isinstance(output, Tensor) and isinstance(y, Tensor) and output.dim() == 2 and y.dim() == 1):
        return None
    return float((output.argmax(1) == y).float().mean())


def set_dropout(net: nn.Module, rate: float | None) -> None:
    """Sets the rate of every dropout layer of ``net``; None leaves them as they are."""
    for module in net.modules():
        if rate is not None and isinstance(module, _DropoutNd):
            module.p = rate
