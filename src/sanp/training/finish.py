"""What follows the last training step: batch norms under evaluation's gates, thresholds that meet the budget."""

from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.core.distributed import same_everywhere
from sanp.core.modules import evaluating
from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import CLOSE, calibrate_thresholds, mean_kept
from sanp.training.precision import Format
from sanp.training.stage import Loader
from sanp.training.task import Task

FAR = 0.03
"""where calibration changed the cost by more, batch norms have seen other gates and are estimated once more"""


@torch.no_grad()
def estimate_norms(net: nn.Module, loader: Loader, batches: int, format: Format) -> None:
    """Plain means of the batch statistics over some batches, everything but the batch norms in evaluation mode.

    In training the statistics were collected under noisy gates, which is not what evaluation will see.
    """
    norms = [m for m in net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if batches == 0 or not norms:
        return
    momenta = [norm.momentum for norm in norms]
    try:
        with evaluating(net):
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # a cumulative mean
                norm.train()
            for x, _ in islice(loader, batches):
                net(format.place(x))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def first_images(loader: Loader, count: int, format: Format) -> list[Tensor]:
    """Whole batches of the loader, at least one, until there are so many images."""
    batches: list[Tensor] = []
    for x, _ in loader:
        batches.append(format.place(x))
        if sum(map(len, batches)) >= count:
            break
    return batches


def calibrate(gated: GatedNetwork, loader: Loader, kept: float, images: int, format: Format) -> float:
    """Calibrates the thresholds on so many training images; gives how far off the share of the FLOPs was."""
    batches = first_images(loader, images, format)
    with evaluating(gated):
        distance = abs(mean_kept(gated, batches) - kept)
    if images == 0 or not gated.layers or distance <= CLOSE:
        return 0.0
    calibrate_thresholds(gated, kept, batches)
    return distance


def to_last_epoch(task: Task) -> None:
    """Has the loader give the same images whether or not the run was interrupted."""
    if hasattr(task.loader, "set_epoch"):
        task.loader.set_epoch(task.config.joint_epochs)


def finish_norms(net: nn.Module, task: Task) -> None:
    """Batch norm statistics alone, for a network without gates to calibrate."""
    to_last_epoch(task)
    format = Format(net, task.config.precision)
    with format.autocast():
        estimate_norms(net, task.loader, task.config.norm_batches, format)


def finish(gated: GatedNetwork, task: Task, kept: float) -> None:
    """After the last step: batch norm statistics with evaluation's gates, then the thresholds that meet the budget."""
    to_last_epoch(task)
    format = Format(gated, task.config.precision)
    with format.autocast():
        for _ in range(2):
            estimate_norms(gated, task.loader, task.config.norm_batches, format)
            if calibrate(gated, task.loader, kept, task.config.calibrate_images, format) <= FAR:
                break
    same_everywhere(gated)  # a loader of one's own may give each process other images
