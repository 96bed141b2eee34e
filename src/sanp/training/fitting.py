"""sanp.fit: trains a gated network to a budget in stages two and three of the paper, and meets the budget."""

from dataclasses import replace

from torch import nn

from sanp.core.devices import moved
from sanp.core.modules import unwrapped
from sanp.gating.network import GatedNetwork
from sanp.training.budget import ObjectiveConfig
from sanp.training.config import FitConfig
from sanp.training.controller import ControllerConfig
from sanp.training.distillation import DistillLoss
from sanp.training.finish import finish_cap, finish_in_steps
from sanp.training.history import History
from sanp.training.normless import suited_rates
from sanp.training.stage import Loader, Stages, Watch
from sanp.training.task import Task, TaskLoss, with_checked_teacher
from sanp.training.three_stages import fit_stages
from sanp.training.watching import watched


def fit(
    gated: GatedNetwork,
    train_loader: Loader,
    budget: object,
    *,
    max_flops: object = None,
    epochs: int | None = None,
    config: FitConfig | None = None,
    objective: ObjectiveConfig | None = None,
    controller: ControllerConfig | None = None,
    loss: TaskLoss | None = None,
    teacher: nn.Module | None = None,
    distill_loss: DistillLoss | None = None,
    device: str | None = None,
    progress: bool = True,
    on_step: Watch | None = None,
) -> History:
    """Trains a gated network to a budget: warm-up, joint training, then calibration of the thresholds.

    ``gated`` is what ``sanp.gate`` returned; it is trained in place. ``train_loader`` gives batches of (input, target),
    the same number in every epoch. ``budget`` is a share (``0.35``, ``"35%"``), a count of multiply-adds (``"60M"``)
    or, with a latency table, a time (``"2.5ms"``); or a range of them (``"20%..60%"``), and ``gated.set_budget`` then
    takes every budget of it. ``max_flops``, a share or a count, is what no image may cost more than afterwards, see
    ``gated.set_max_flops``; training itself goes on without it. ``epochs`` is the number of joint epochs, instead of
    that in ``config``, which holds all settings of the stages; ``objective`` holds those of the cost loss and
    ``controller`` those of λ. ``loss`` computes the loss from output and target; cross entropy if not given.
    ``teacher`` is the network to distill from; if not given, the gated network as it is at the start. A teacher that
    knows nothing on the first batches is left out with a warning. ``distill_loss`` computes the distillation loss from
    the output and the teacher's; if not given, logits are compared by their distributions and other outputs by their
    squared difference. ``device`` moves the network and the teacher there first: auto, cpu, cuda or mps. ``progress``
    shows how far training is. ``on_step`` is called with a :class:`Progress` after each step. A network that
    ``torch.compile`` wraps is trained without the wrapper.

    Returns the means of each epoch.
    """
    if isinstance(gated, nn.Module):
        gated = unwrapped(gated)  # type: ignore[assignment]
    if device is not None:
        moved(gated, device)
        moved(teacher, device)
    config = config or FitConfig()
    task = Task(
        loader=train_loader,
        budget=budget,
        max_flops=max_flops,
        config=suited_rates(config if epochs is None else replace(config, joint_epochs=epochs), gated),
        objective=objective or ObjectiveConfig(),
        controller=controller or ControllerConfig(),
        loss=loss,
        teacher=teacher,
        distill_loss=distill_loss,
    )
    stages = {"warm-up": task.config.warmup_epochs, "joint": task.config.joint_epochs}
    after = finish_in_steps(task.config, getattr(train_loader, "batch_size", None) or 64)
    return watched(_capped_stages(gated, with_checked_teacher(task)), stages, progress, on_step, finish=after)


def _capped_stages(gated: GatedNetwork, task: Task) -> Stages:
    """The stages of SANP, and then the cap."""
    trained = yield from fit_stages(gated, task)
    finish_cap(gated, task)
    return trained
