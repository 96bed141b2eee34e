"""What follows the last training step: batch norms under evaluation's gates, thresholds that meet the budget."""

from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.core.distributed import same_everywhere
from sanp.core.modules import evaluating
from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import CLOSE, mean_cost, move_thresholds
from sanp.training.precision import Format
from sanp.training.stage import Loader
from sanp.training.task import Task

FAR = 0.03
"""thresholds that moved the cost by more leave batch norms that have seen other gates"""


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


def calibrate(gated: GatedNetwork, loader: Loader, share: float, images: int, format: Format) -> float:
    """Moves the thresholds until the mean cost on so many training images is the share; gives how far off it was."""
    batches: list[Tensor] = []
    for x, _ in loader:
        batches.append(format.place(x))
        if sum(len(batch) for batch in batches) >= images:
            break
    with evaluating(gated):
        distance = abs(mean_cost(gated, batches) - share)
    if images == 0 or not gated.layers or distance <= CLOSE:
        return 0.0
    move_thresholds(gated, share, batches)
    return distance


def finish(gated: GatedNetwork, task: Task, share: float) -> None:
    """After the last step: batch norm statistics with evaluation's gates, then the thresholds that meet the budget."""
    if hasattr(task.loader, "set_epoch"):
        task.loader.set_epoch(task.config.joint_epochs)  # the same images whether or not the run was interrupted
    format = Format(gated, task.config.precision)
    with format.autocast():
        for _ in range(2):
            estimate_norms(gated, task.loader, task.config.norm_batches, format)
            if calibrate(gated, task.loader, share, task.config.calibrate_images, format) <= FAR:
                break
    same_everywhere(gated)  # a loader of one's own may give each process other images
