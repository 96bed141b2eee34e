"""Weights that no image uses: channels that are pruned for every image, and kernels that read only such channels."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import is_parametrized

from sanp.core.errors import SanpError
from sanp.core.modules import call_with, evaluating, placed_for
from sanp.gating.thresholds import batches_of
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.spm.recording import record
from sanp.tracing.topology import module_path

if TYPE_CHECKING:
    from sanp.gating.network import GatedNetwork

FAR_BELOW = 1.0
"""how far below the lowest saliency of its layer a channel is put that is closed for good"""


@torch.no_grad()
def zero_unused(gated: "GatedNetwork", images: Tensor | Iterable[Any], *, rarely: float = 0.0) -> float:
    """Closes the channels that none of these images opens for good, and sets all weights to zero that are then unused.

    ``gated`` is changed in place and gives the same outputs for ``images``, a tensor or batches of them: take all
    training images. Its files become smaller, since rows and columns of zeros are not written. ``rarely`` closes also
    what no more than this share of the images opens, whose outputs then change; each layer keeps its most used channel.
    A channel that only another image would have opened stays closed, so measure the accuracy again. A network with a
    range of budgets is refused: what its smallest budget closes, larger ones open.

    Returns the share of the convolutions' weights that is zero now.
    """
    if gated.dial is not None:
        raise SanpError(
            "this network was trained for a range of budgets, which opens channels again: nothing is unused"
        )
    if not 0 <= rarely < 1:
        raise SanpError(f"rarely is {rarely}: give a share of the images, from 0 to less than 1")
    counted, lowest = _seen(gated, images)
    opened = {name: (shares > rarely) | (shares == shares.max()) & (shares > 0) for name, shares in counted.items()}
    sides = gated.cost.live_sides({name: mask[None].double() for name, mask in opened.items()})
    layers = {module.name: module for module in gated.net.modules() if isinstance(module, GatedConv | FollowingConv)}
    convs = {path: module for path, module in gated.net.named_modules() if isinstance(module, _ConvNd)}
    inputs, outputs = _by_module(sides, 0), _by_module(sides, 1)
    for path in outputs:
        layer = layers.get(path)
        conv = convs.get(path) if layer is None else layer.conv
        if isinstance(layer, GatedConv) and not layer.spm.saliency.fix(~outputs[path], lowest[path] - FAR_BELOW):
            raise SanpError(f"the saliencies of {path} have no bias, so no channel of it can be closed for good")
        if isinstance(conv, _ConvNd) and not is_parametrized(conv):
            _zero(conv, ~inputs[path], ~outputs[path])
    weights = [module.weight for module in gated.net.modules() if isinstance(module, _ConvNd)]
    return 1 - sum(int(weight.count_nonzero()) for weight in weights) / max(1, sum(map(Tensor.numel, weights)))


def _seen(gated: "GatedNetwork", images: Tensor | Iterable[Any]) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The share of the images that open each channel (C_out,), by layer, and each module's lowest saliency, by path."""
    opened: dict[str, Tensor] = {}
    images_of: dict[str, int] = {}
    lowest: dict[str, float] = {}
    several = max(1, len(gated.origin.input_shapes))
    parts = [images] if isinstance(images, Tensor) else ([part] for part in images)  # one batch in memory at a time
    for batch in (batch for part in parts for batch in batches_of(part, several)):
        with evaluating(gated), record(gated) as gates:
            call_with(gated, placed_for(gated, batch))
        for name, made in gates.items():
            now = made.decision.bool().sum(0)
            opened[name] = opened[name] + now if name in opened else now
            images_of[name] = images_of.get(name, 0) + len(made.decision)
            path, least = module_path(name), float(made.saliency.min())
            lowest[path] = min(lowest.get(path, least), least)
    if not opened:
        raise SanpError("zero_unused was given no images, or a network without gates: give all training images")
    return {name: total / images_of[name] for name, total in opened.items()}, lowest


def _by_module(sides: dict[str, tuple[Tensor, Tensor]], side: int) -> dict[str, Tensor]:
    """Whether each channel on one side (0: inputs, 1: outputs) is live in any call of a module, by its path."""
    found: dict[str, Tensor] = {}
    for name, both in sides.items():
        live, path = both[side][0] > 0, module_path(name)
        found[path] = found[path] | live if path in found else live
    return found


def _zero(conv: _ConvNd, dead_inputs: Tensor, closed: Tensor) -> None:
    """Sets the kernels of closed outputs and those that read dead inputs to zero, where the layout allows it."""
    if conv.transposed:
        return
    conv.weight[closed] = 0
    if conv.groups == 1:
        conv.weight[:, dead_inputs] = 0
