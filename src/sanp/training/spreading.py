"""Makes room for larger budgets in a network that was trained for a small one: its closed channels are put in order.

Training for one budget pushes the saliencies of closed channels below 0, all to the same place. Larger budgets cannot
open them: nothing says which comes first, and a negative saliency would turn their features around. Here all saliencies
rise by the width of the range, so that a lower threshold opens channels whose saliency is positive, and the closed ones
are spread below the threshold of the smallest budget.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from sanp.core.errors import SanpError
from sanp.gating.network import GatedNetwork
from sanp.spm.gated_conv import GatedConv
from sanp.spm.recording import Gates
from sanp.tracing.topology import module_path

WIDTH = 0.5
"""the threshold of the smallest budget; the largest one has about 0. Open channels have saliencies around 0.5 to 2"""
BELOW = 0.7
"""closed channels are spread from this part of the width below 0, for those that no budget of the range should open"""
LEAST_FACTOR = 0.05
"""the smallest factor that a batch norm takes over from a saliency"""
QUIET = 0.1
"""factor on the features of closed channels: opened by a larger budget, they begin with a small contribution, since
batch norms have the statistics of the smallest budget (docs/log.md)"""


def can_spread(network: GatedNetwork) -> bool:
    """Whether the saliencies of all layers have a bias, and thresholds decide which channels are open."""
    layers = network.layers.values()
    by_threshold = all(layer.spm.binarize.fixed_count is None for layer in layers)
    return by_threshold and all(layer.spm.saliency.shift(torch.zeros(())) for layer in layers)


@torch.no_grad()
def spread(network: GatedNetwork, gates: Mapping[str, Gates]) -> None:
    """Raises all saliencies by the width of the range and spreads those of closed channels below it.

    ``gates`` is what ``sanp.record`` recorded of a forward: a channel counts as closed if no sample opened it. The
    smallest budget keeps its function: its thresholds rise as well, and batch norms take over the change of the mean
    saliency.
    """
    for name, layer in network.layers.items():
        calls = [made for call, made in gates.items() if module_path(call) == name]
        if not calls:
            continue
        saliency = torch.cat([made.saliency.detach() for made in calls])  # (N, C_out)
        decision = torch.cat([made.decision for made in calls])
        threshold = float(layer.spm.threshold)
        rise = WIDTH - threshold
        often = decision.sum(0)
        opened = often > 0
        mean = (saliency * decision).sum(0) / often.clamp(min=1)
        wanted = torch.where(opened, saliency.mean(0) + rise, _places(layer, ~opened))
        if not layer.spm.saliency.shift(wanted - saliency.mean(0)):
            raise SanpError(f"the saliencies of {name} have no bias, which a range of budgets needs: give spm.bias")
        if layer.spm.scales:
            factor = torch.where(opened, (mean / (mean + rise)).clamp(LEAST_FACTOR, 1.0), torch.full_like(mean, QUIET))
            _scale(layer, factor)
        layer.spm.level = WIDTH


def _places(layer: GatedConv, closed: Tensor) -> Tensor:
    """A saliency (C_out,) for each closed channel: evenly spaced, the higher, the larger the channel's kernel is.

    Channels that are decided together get the same one. Open channels get one too, which is not used.
    """
    group = layer.spm.group
    size = _kernel_size(layer, len(closed)).reshape(-1, group).mean(1)
    shut = closed.reshape(-1, group).all(1)
    count = int(shut.sum())
    rank = torch.empty_like(size)
    rank[shut] = size[shut].argsort().argsort().to(size)
    places = WIDTH * (-BELOW + (1 + BELOW) * (rank + 0.5) / max(1, count + 1))
    return torch.where(shut, places, torch.zeros_like(places)).repeat_interleave(group)


def _kernel_size(layer: GatedConv, channels: int) -> Tensor:
    """The norm of each output channel's kernel (C_out,), with the factor of the batch norm."""
    conv = layer.conv
    assert isinstance(conv, _ConvNd)
    weight = conv.weight.detach().float()
    if conv.transposed:  # (C_in, C_out / groups, ...)
        weight = weight.transpose(0, 1)
    size: Tensor = weight.flatten(1).norm(dim=1).repeat(channels // len(weight))
    norm = layer.norm
    if isinstance(norm, _BatchNorm) and norm.affine and norm.running_var is not None:
        size = size * norm.weight.abs() * (norm.running_var + norm.eps).rsqrt()
    return size


def _scale(layer: GatedConv, factor: Tensor) -> None:
    """Multiplies what a layer computes, before its saliency, by ``factor`` (C_out,), if its batch norm can do that."""
    norm = layer.norm
    if isinstance(norm, _BatchNorm) and norm.affine:
        # The gradients of the present step may be still to come. By .data they are, once, those of a norm of another
        # size, instead of an error.
        norm.weight.data.mul_(factor)
        norm.bias.data.mul_(factor)
