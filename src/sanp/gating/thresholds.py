"""Calibrates all decision thresholds together, so that the mean cost on given images is the budget.

Top-k gates have no threshold; for them k is changed.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sanp.core.batch_checks import explained
from sanp.core.bisection import bisect, nearest
from sanp.core.checks import check_kind, check_many
from sanp.core.errors import SanpError
from sanp.core.modules import call_with, evaluating, tensors_in
from sanp.spm.recording import decisions_of, record

if TYPE_CHECKING:
    from sanp.gating.network import GatedNetwork

CLOSE = 5e-4
"""near enough to the wanted share of the FLOPs to stop"""
FAR = 5e-3
"""so far from it that layers are moved one by one"""


def batches_of(images: Tensor | Iterable[Any], inputs: int = 1, size: int = 250) -> list[Any]:
    """Batches of what the network takes, without labels: tensors, or tuples where it has several inputs."""
    if isinstance(images, Tensor):
        return list(images.split(size))
    check_many("images", images, "a tensor, or batches of one")
    return [_inputs_of(batch, inputs) for batch in images]


def _inputs_of(batch: Any, inputs: int) -> Any:
    if isinstance(batch, tuple | list) and batch:
        batch = batch[0] if inputs == 1 else tuple(batch[:inputs])
    if inputs == 1 or not isinstance(batch, tuple | dict):
        check_kind("a batch", batch, Tensor, "a tensor of images")
    return batch


@torch.no_grad()
def mean_kept(network: "GatedNetwork", batches: list[Any]) -> float:
    """The mean share of the dense FLOPs that is computed for these batches, in evaluation mode."""
    total, count = 0.0, 0
    for x in batches:
        with record(network) as gates:
            call_with(network, x)
        flops = network.cost.per_sample(decisions_of(gates))
        total, count = total + float(flops.sum()), count + len(flops)
    return total / count / network.dense_flops


def calibrate_thresholds(
    network: "GatedNetwork", kept: float, images: Tensor | Iterable[Any], steps: int = 20
) -> float:
    """Sets one level in all layers so that the mean cost is ``kept``; gives the share reached on these images."""
    batches = batches_of(images, max(1, len(network.origin.input_shapes)))
    tensors = tensors_in(batches)
    if not batches or not all(tensor.numel() for tensor in tensors):
        raise SanpError("set_budget was given no images: give some of the training images, a few hundred serve")
    if not network.layers:
        raise SanpError("this network has no gated layer, so its cost cannot be changed")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise SanpError("the images to set the budget on hold NaN or infinity: give others")
    generator = torch.Generator().manual_seed(0)
    spms = [layer.spm for layer in network.layers.values()]
    for spm in spms:
        spm.saliency.wake(generator)

    def kept_at(level: float) -> float:
        for spm in spms:
            spm.level = level
        return mean_kept(network, batches)

    told = explained(network, batches[0], None) if isinstance(batches[0], Tensor) else nullcontext()
    with told, evaluating(network):
        tried = _tried_levels(kept_at, kept, spms[0].level, steps)
        near = nearest(tried, kept)
        same = any(spm.binarize.same_in_all_layers for spm in spms)
        if abs(tried[near] - kept) > FAR and not same:
            reached = _open_one_by_one(network, batches, kept, tried, kept_at)
            if abs(reached - kept) < abs(tried[near] - kept):
                return reached
        return kept_at(near)


def _open_one_by_one(
    network: "GatedNetwork",
    batches: list[Any],
    kept: float,
    tried: dict[float, float],
    kept_at: Callable[[float], float],
) -> float:
    """From the nearest cost below the budget, opens one layer after the other where the budget leaves room for it.

    Where the images do not differ in a layer it opens all at once, and no common level may come near to the budget.
    """
    closed = min((level for level, share in tried.items() if share <= kept), default=max(tried))
    opened = min(tried) - 1  # saliencies and values are of that order
    reached = kept_at(closed)
    for layer in network.layers.values():
        layer.spm.level = opened
        now = mean_kept(network, batches)
        if now <= kept:
            reached = now
        else:
            layer.spm.level = closed
    return float(reached)


def _tried_levels(kept_at: Callable[[float], float], kept: float, start: float, steps: int) -> dict[float, float]:
    """Levels and what is kept at each, one of them near the wanted share if any is; less is kept at a higher level."""
    tried = {start: kept_at(start)}
    width = 0.05
    low = high = start  # kept_at(low) >= kept >= kept_at(high) once both ends are found
    while len(tried) < steps and tried[low] < kept:
        low, width = low - width, 2 * width
        tried[low] = kept_at(low)
    while len(tried) < steps and tried[high] > kept:
        high, width = high + width, 2 * width
        tried[high] = kept_at(high)
    bisect(kept_at, kept, tried, low, high, steps=steps, close=CLOSE, narrowest=1e-7, interpolate=True)
    return tried
