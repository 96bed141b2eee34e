"""One pass over test images: which channels are open how often, and what the last convolution answers to a class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sanp.evaluation import Onlooker
from sanp.gating.network import GatedNetwork
from sanp.tracing.topology import Layer

DEPENDS = (0.01, 0.99)
"""a channel that is open for a share of the images within these bounds depends on the image"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelUse:
    """What the images did to the channels."""

    open: Mapping[str, Tensor]
    """layer name to (C_out,): the share of the images for which a channel is computed, in order of execution"""
    last_block: Tensor
    """(N,): how many channels of the last block an image computes"""
    block_channels: int
    """how many there are"""
    activation: Tensor
    """(K, C): the mean over a class's images and all positions of what a channel of the last convolution gives"""

    @property
    def depends_deeper_half(self) -> float:
        """Share of the channels of the deeper half of the layers that depend on the image."""
        layers = list(self.open.values())
        rates = torch.cat(layers[len(layers) // 2 :])
        return float(((rates >= DEPENDS[0]) & (rates <= DEPENDS[1])).double().mean())


def channel_use(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int) -> ChannelUse:
    """Runs a classifier over batches of normalised images and their labels."""
    look: Onlooker | None = None
    opened: dict[str, Tensor] = {}
    used, counts, sums, given = [], torch.zeros(num_classes, dtype=torch.float64), Tensor(), list[Tensor]()

    def keep(module: nn.Module, arguments: object, output: Tensor) -> None:
        given.append(output.relu().mean((2, 3)).double())  # (N, C); what a ReLU after the batch norm lets through

    hook = _last(network).register_forward_hook(keep)
    try:
        for x, y in batches:
            look = look or Onlooker(network, x[:1])
            given.clear()
            seen = look(x).open
            masks = {layer.name: seen.get(layer.name, torch.ones(len(x), layer.out_channels)) for layer in _convs(look)}
            for name, mask in masks.items():
                opened[name] = opened.get(name, 0.0) + mask.double().sum(0)
            block = last_block(_convs(look))
            used.append(torch.cat([masks[layer.name] for layer in block], 1).sum(1))
            sums = sums if len(sums) else torch.zeros(num_classes, given[0].shape[1], dtype=torch.float64)
            sums.index_add_(0, y, given[0])
            counts.index_add_(0, y, torch.ones(len(y), dtype=torch.float64))
    finally:
        hook.remove()
    assert look is not None
    return ChannelUse(
        open={name: total / counts.sum() for name, total in opened.items()},
        last_block=torch.cat(used).round().long(),
        block_channels=sum(layer.out_channels for layer in last_block(_convs(look))),
        activation=sums / counts.clamp(min=1)[:, None],
    )


def last_block(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The convolutions of the last one's block; in a plain chain those since the maps last became smaller."""
    parents = [layer.name.rpartition(".")[0] for layer in layers]
    if len(set(parents)) > 1:
        return tuple(layer for layer, parent in zip(layers, parents, strict=True) if parent == parents[-1])
    return tuple(layer for layer in layers if layer.positions == layers[-1].positions)


def _convs(look: Onlooker) -> tuple[Layer, ...]:
    return tuple(layer for layer in look.cost.layers if layer.kind == "conv")


def _last(network: nn.Module) -> nn.Module:
    """What gives the last convolution's normalised maps: its gated form, or else the batch norm that follows it."""
    if isinstance(network, GatedNetwork) and network.layers:
        return list(network.layers.values())[-1]
    kinds = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d)]
    return kinds[-1]
