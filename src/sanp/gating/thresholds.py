"""The dial: moves all decision thresholds together until the mean cost on given images is what is wanted.

Where the most salient channels win, whatever their saliencies are, it moves the share of channels that loses.
"""

from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sanp.core.batch_checks import explained
from sanp.core.checks import check_kind, check_many
from sanp.core.errors import SanpError
from sanp.core.modules import call_with, evaluating, tensors_in
from sanp.spm.binarize import TopK
from sanp.spm.module import SPM
from sanp.spm.recording import record
from sanp.spm.saliency import PredictedSaliency

if TYPE_CHECKING:
    from sanp.gating.network import GatedNetwork

CLOSE = 5e-4
"""near enough to the wanted share to stop"""
FAR = 5e-3
"""so far from it that layers are moved one by one"""


def batches_of(images: Tensor | Iterable[Any], inputs: int = 1, size: int = 250) -> list[Any]:
    """Batches of what the network takes alone, whatever they came with: a tensor, or as many as it has inputs."""
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
def mean_cost(network: "GatedNetwork", batches: list[Any]) -> float:
    """The mean share of the dense FLOPs over the images, in evaluation mode."""
    total, count = 0.0, 0
    for x in batches:
        with record(network) as gates:
            call_with(network, x)
        cost = network.cost.per_sample({name: gate.decision for name, gate in gates.items()})
        total, count = total + float(cost.sum()), count + len(cost)
    return total / count / network.dense_flops


def level_of(spm: SPM) -> float:
    """What the dial moves: the threshold, or the share of channels that does not win."""
    return 1 - spm.binarize.density if isinstance(spm.binarize, TopK) else spm.threshold.item()


def set_level(spm: SPM, level: float) -> None:
    """Sets it; the higher, the fewer channels are open."""
    if isinstance(spm.binarize, TopK):
        spm.binarize.density = min(1.0, max(0.0, 1 - level))
    else:
        spm.threshold.fill_(level)


def set_all(network: "GatedNetwork", level: float) -> None:
    """Sets it in every gated layer."""
    for layer in network.layers.values():
        set_level(layer.spm, level)


def move_thresholds(network: "GatedNetwork", share: float, images: Tensor | Iterable[Any], steps: int = 20) -> float:
    """Bisects the common threshold (regula falsi, halving when stuck); gives the share reached on these images."""
    batches = batches_of(images, max(1, len(network.origin.input_shapes)))
    tensors = tensors_in(batches)
    if not batches or not all(tensor.numel() for tensor in tensors):
        raise SanpError("set_budget was given no images: give some of the training images, a few hundred serve")
    if not network.layers:
        raise SanpError("this network has no gated layer, so its cost cannot be changed")
    _wake_untrained(network)
    start = level_of(next(iter(network.layers.values())).spm)

    def cost_at(level: float) -> float:
        set_all(network, level)
        return mean_cost(network, batches)

    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise SanpError("the images to set the budget on hold NaN or infinity: give others")
    told = explained(network, batches[0], None) if isinstance(batches[0], Tensor) else nullcontext()
    with told, evaluating(network):
        tried = _bisect(cost_at, share, start, steps)
        near = min(tried, key=lambda level: abs(tried[level] - share))
        same = any(isinstance(layer.spm.binarize, TopK) for layer in network.layers.values())  # in every layer
        if abs(tried[near] - share) > FAR and not same:
            reached = _open_one_by_one(network, batches, share, tried, cost_at)
            if abs(reached - share) < abs(tried[near] - share):
                return reached
        return cost_at(near)


def _open_one_by_one(network: "GatedNetwork", batches: Any, share: float, tried: Any, cost_at: Any) -> float:
    """From the nearest cost below the share, opens one layer after the other where the share leaves room for it.

    Where the images do not differ in a layer it opens all at once, and no common level may come near to the share.
    """
    closed = min((level for level, cost in tried.items() if cost <= share), default=max(tried))
    opened = min(tried) - 1  # saliencies and values are of that order
    reached = cost_at(closed)
    for layer in network.layers.values():
        set_level(layer.spm, opened)
        cost = mean_cost(network, batches)
        if cost <= share:
            reached = cost
        else:
            set_level(layer.spm, closed)
    return float(reached)


def _bisect(cost_at: Any, share: float, start: float, steps: int) -> dict[float, float]:
    """Levels and their costs, one of them near the share if any is; the cost falls as the level rises."""
    tried = {start: cost_at(start)}
    width = 0.05
    low = high = start  # cost_at(low) >= share >= cost_at(high) once both ends are found
    while len(tried) < steps and tried[low] < share:
        low, width = low - width, 2 * width
        tried[low] = cost_at(low)
    while len(tried) < steps and tried[high] > share:
        high, width = high + width, 2 * width
        tried[high] = cost_at(high)
    halve = False
    while len(tried) < steps and min(abs(cost - share) for cost in tried.values()) > CLOSE and high - low > 1e-7:
        fall = tried[low] - tried[high]
        part = 0.5 if halve or fall <= 0 else min(0.9, max(0.1, (tried[low] - share) / fall))
        middle = low + part * (high - low)
        tried[middle] = cost_at(middle)
        halve = not halve
        low, high = (middle, high) if tried[middle] > share else (low, middle)
    return tried


def _wake_untrained(network: "GatedNetwork") -> None:
    """Gives an SPM whose W2 is still zero random weights: without them all its channels would open and close as one."""
    generator = torch.Generator().manual_seed(0)
    for layer in network.layers.values():
        saliency = layer.spm.saliency
        if isinstance(saliency, PredictedSaliency) and not bool(saliency.w2.weight.any()):
            random = torch.randn(saliency.w2.weight.shape, generator=generator)
            with torch.no_grad():
                saliency.w2.weight.copy_(random / saliency.w2.in_features**0.5)
                if saliency.w2.bias is not None:
                    spread = torch.rand(saliency.w2.bias.shape, generator=generator)
                    nn.init.ones_(saliency.w2.bias).add_(spread - 0.5)
