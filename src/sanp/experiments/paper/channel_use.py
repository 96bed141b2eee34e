"""Measures in one pass over images how often each channel is open, and the last convolution's activation by class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sanp.evaluation import Onlooker
from sanp.gating.network import GatedNetwork
from sanp.tracing.topology import Layer

DEPENDS = (0.01, 0.99)
"""a channel depends on the image if the share of the images for which it is open lies within these bounds"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelUse:
    """How the images use the channels of a network."""

    open: Mapping[str, Tensor]
    """layer name, in order of execution, to (C_out,): the share of the images for which a channel is computed"""
    last_block: Tensor
    """(N,): the number of channels of the last block that an image computes"""
    block_channels: int
    """the number of channels of the last block"""
    activation: Tensor
    """(K, C): the activation of each channel of the last convolution, as a mean over the images of a class"""

    @property
    def depends_deeper_half(self) -> float:
        """The share of the channels in the deeper half of the layers that depend on the image."""
        layers = list(self.open.values())
        rates = torch.cat(layers[len(layers) // 2 :])
        return float(((rates >= DEPENDS[0]) & (rates <= DEPENDS[1])).double().mean())


def channel_use(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int) -> ChannelUse:
    """Runs a classifier over batches of normalised images and labels, and measures its channels."""
    look: Onlooker | None = None
    opened: dict[str, Tensor] = {}
    used, counts, sums, given = [], torch.zeros(num_classes, dtype=torch.float64), Tensor(), list[Tensor]()

    def keep(module: nn.Module, arguments: object, output: Tensor) -> None:
        given.append(output.relu().mean((2, 3)).cpu().double())  # (N, C); a ReLU follows the batch norm

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
    """The convolutions of the last block: those with the same parent module as the last one.

    In a plain chain, where all have the same parent, it is those whose maps are as large as the last one's.
    """
    parents = [layer.name.rpartition(".")[0] for layer in layers]
    if len(set(parents)) > 1:
        return tuple(layer for layer, parent in zip(layers, parents, strict=True) if parent == parents[-1])
    return tuple(layer for layer in layers if layer.positions == layers[-1].positions)


def _convs(look: Onlooker) -> tuple[Layer, ...]:
    return tuple(layer for layer in look.cost.layers if layer.kind == "conv")


def _last(network: nn.Module) -> nn.Module:
    """The module that gives the last convolution's maps after its batch norm.

    It is the last gated layer, or without gates the last batch norm or convolution of the network.
    """
    if isinstance(network, GatedNetwork) and network.layers:
        return list(network.layers.values())[-1]
    kinds = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d)]
    return kinds[-1]
