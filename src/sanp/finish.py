"""What follows the last training step: batch norms under evaluation's gates, thresholds that meet the budget."""

from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.dial import CLOSE, mean_cost, move_thresholds
from sanp.network import GatedNetwork
from sanp.precision import Format
from sanp.stages import Loader
from sanp.trace import evaluating

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
