"""What follows the last training step: new batch norm statistics, and thresholds calibrated to the budget."""

import json
import math
import warnings
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.core.distributed import rank, same_everywhere, texts
from sanp.core.errors import BudgetWarning
from sanp.core.modules import evaluating
from sanp.gating.cap import USUAL, read_cap
from sanp.gating.level_search import CLOSE
from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import calibrate_thresholds, kept_on
from sanp.gating.trained_budgets import MISSED
from sanp.training.config import FitConfig
from sanp.training.precision import Format
from sanp.training.stage import Loader
from sanp.training.task import Task

CHANGED_GATES = 0.03
"""if calibration changed the computed share of the FLOPs by more, the gates are so different that the batch norm
statistics are estimated again"""


@torch.no_grad()
def estimate_norms(net: nn.Module, loader: Loader, batches: int, format: Format) -> None:
    """Replaces the running statistics of all batch norms by plain means over the loader's first ``batches`` batches.

    All other modules are in evaluation mode: in training the statistics were collected with noisy gates, which
    evaluation does not use. ``format`` places the images on the device.
    """
    norms = [m for m in net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if batches == 0 or not norms:
        return
    momenta = [norm.momentum for norm in norms]
    try:
        with evaluating(net):
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # means a cumulative mean
                norm.train()
            for x, _ in islice(loader, batches):
                net(format.place(x))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def first_images(loader: Loader, count: int, format: Format) -> list[Tensor]:
    """The first batches of the loader, at least one, until there are ``count`` images; placed by ``format``."""
    batches: list[Tensor] = []
    for x, _ in loader:
        batches.append(format.place(x))
        if sum(map(len, batches)) >= count:
            break
    return batches


def calibrate(gated: GatedNetwork, batches: list[Tensor], kept: float) -> tuple[float, float]:
    """Calibrates the thresholds so that the share ``kept`` of the dense FLOPs is computed for these images.

    Returns the share before, and the share that was reached.
    """
    with evaluating(gated):
        before = kept_on(gated, batches)
    if abs(before - kept) <= CLOSE:
        return before, before
    return before, calibrate_thresholds(gated, kept, batches)


def finish_in_steps(config: FitConfig, batch_size: int) -> float:
    """How many training steps take as long as :func:`finish` does, for the time left; ``batch_size`` is a step's."""
    levels = 15  # tried by a calibration, of at most 20
    forwards = config.norm_batches + levels * math.ceil(config.calibrate_images / batch_size)
    return forwards / 3  # a step computes a forward, and a backward of twice its FLOPs


def to_last_epoch(task: Task) -> None:
    """Sets the epoch of the loader, so that its next images are the same whether or not the run was interrupted."""
    if hasattr(task.loader, "set_epoch"):
        task.loader.set_epoch(task.config.joint_epochs)


def finish_norms(net: nn.Module, task: Task) -> None:
    """After the last step of a network without thresholds: estimates the batch norm statistics."""
    to_last_epoch(task)
    format = Format(net, task.config.precision, exact=True)
    with format.autocast():
        estimate_norms(net, task.loader, task.config.norm_batches, format)


def finish(gated: GatedNetwork, task: Task, kept: float) -> None:
    """After the last step: estimates the batch norm statistics and calibrates the thresholds to the share ``kept``."""
    to_last_epoch(task)
    format = Format(gated, task.config.precision, exact=True)
    count = task.config.calibrate_images
    reached = kept
    with format.autocast():
        for _ in range(2):
            estimate_norms(gated, task.loader, task.config.norm_batches, format)
            batches = first_images(task.loader, count, format)
            if count == 0 or not gated.layers:
                break
            before, reached = calibrate(gated, batches, kept)
            if abs(before - kept) <= CHANGED_GATES:
                break
    same_everywhere(gated)  # the user's own loader may give each process other images
    if abs(reached - kept) > MISSED and rank() == 0:
        warnings.warn(_missed(reached, kept, sum(map(len, batches))), BudgetWarning, stacklevel=2)


def finish_range(gated: GatedNetwork, task: Task) -> None:
    """After the last step of training for a range: measures which threshold has which cost. Batch norms stay."""
    to_last_epoch(task)
    format = Format(gated, task.config.precision, exact=True)
    with format.autocast():
        gated.set_budget(task.budget, first_images(task.loader, max(1, task.config.calibrate_images), format))
    same_everywhere(gated)


def finish_cap(gated: GatedNetwork, task: Task) -> None:
    """After all else: caps what an image may cost, if the task says so."""
    if task.max_flops is None:
        return
    to_last_epoch(task)
    format = Format(gated, task.config.precision, exact=True)
    with format.autocast():
        gated.set_max_flops(task.max_flops, first_images(task.loader, USUAL, format))
    if gated.cap is not None:  # of the first process, since each has seen other images
        gated.cap = read_cap(gated, json.loads(texts(json.dumps(gated.cap.as_dict()))[0]))


def _missed(reached: float, kept: float, images: int) -> str:
    """Says how far a calibrated network is from its budget, and why."""
    return (
        f"the network computes {reached:.1%} of the dense FLOPs for the {images} image{'s' if images > 1 else ''} that "
        f"its thresholds were calibrated on, and the budget is {kept:.1%}: no thresholds come closer, since channels "
        "whose scores are equal for these images open together; give more images, or train for more steps"
    )
