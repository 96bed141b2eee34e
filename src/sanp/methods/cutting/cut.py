"""Cuts channels out of a network: it removes them from every tensor, so that the network really is smaller.

:func:`masked` makes the network of full size with the same channels at zero. Both must give the same output.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from sanp.core.errors import SanpError
from sanp.core.modules import call_with, evaluating
from sanp.gating.accounting import FixedCost
from sanp.gating.count import ungated_cost
from sanp.methods.cutting.groups import ChannelGroups
from sanp.tracing.topology import module_path

CUT_TOLERANCE = 1e-5
"""largest accepted difference between the cut and the masked network, relative to the largest output"""


@dataclass(frozen=True)
class Kept:
    """The channels of one layer that are left."""

    inputs: tuple[int, ...] | None
    """indices of the input channels; None if all are left"""
    outputs: tuple[int, ...] | None
    """indices of the output channels; None if all are left"""


class CutNetwork(nn.Module):
    """A network without some of its channels; called like the original. It can count its own and the dense FLOPs.

    ``net`` is the dense network, which is copied. ``kept`` holds the channels that are left, by module path; layers
    that are not named keep all. ``example`` is an input for the network, ``method`` the name of the pruning method.
    """

    def __init__(self, net: nn.Module, kept: Mapping[str, Kept], example: Any, method: str) -> None:
        super().__init__()
        self.net = copy.deepcopy(net)
        self.kept = dict(kept)
        self.method = method
        self.input_shape = tuple(example.shape) if isinstance(example, Tensor) else None
        for path, channels in self.kept.items():
            _shrink(self.net.get_submodule(path), channels)
        dense, left = ungated_cost(net, example), ungated_cost(self.net, example)
        with torch.no_grad():
            flops = {name: float(count) for name, count in FixedCost(left, {}, {}).per_layer({}).items()}
        opened = {
            layer.name: _opened(layer.out_channels, self.kept.get(module_path(layer.name))) for layer in dense.layers
        }
        self.cost = FixedCost(dense, flops, opened)
        self.training = net.training

    @property
    def overhead_flops(self) -> int:
        """0, since there are no decisions."""
        return 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The forward of the smaller network."""
        return self.net(*args, **kwargs)


def cut(net: nn.Module, channel_groups: ChannelGroups, removed: set[int], example: Any, *, method: str) -> CutNetwork:
    """A copy of ``net`` without the channel groups ``removed``; an error if its output is not that of the masked one.

    ``net`` is not changed. ``example`` is an input for it, ``method`` the name of the pruning method.
    """
    smaller = CutNetwork(net, kept_channels(channel_groups, removed), example, method)
    full = masked(net, channel_groups, removed)
    with torch.no_grad(), evaluating(full), evaluating(smaller):
        try:
            pairs = list(zip(_tensors(call_with(full, example)), _tensors(call_with(smaller, example)), strict=True))
        except (RuntimeError, ValueError, TypeError) as error:
            raise SanpError(
                f"{type(net).__name__} does not run with fewer channels ({error}): "
                "its forward counts on their number; choose a method that gates, such as sanp"
            ) from error
    for wanted, found in pairs:
        if wanted.shape != found.shape or not torch.allclose(
            wanted, found, rtol=0, atol=CUT_TOLERANCE * max(1.0, float(wanted.abs().max()))
        ):
            raise SanpError(
                f"{type(net).__name__} gives something else with fewer channels than with those channels at zero: "
                "its forward counts on their number; choose a method that gates, such as sanp"
            )
    return smaller


def kept_channels(channel_groups: ChannelGroups, removed: set[int]) -> dict[str, Kept]:
    """The channels that are left without the groups ``removed``, for each layer that loses any, by path."""
    found = {}
    for path, member in channel_groups.members.items():
        inputs, outputs = (_indices(channel_groups, side, removed) for side in (member.inputs, member.outputs))
        if inputs is not None or outputs is not None:
            found[path] = Kept(inputs, outputs)
    return found


def _indices(channel_groups: ChannelGroups, ids: Tensor | None, removed: set[int]) -> tuple[int, ...] | None:
    if ids is None:
        return None
    kept = channel_groups.kept(ids, removed)
    return None if bool(kept.all()) else tuple(kept.nonzero()[:, 0].tolist())


@torch.no_grad()
def masked(net: nn.Module, channel_groups: ChannelGroups, removed: set[int]) -> nn.Module:
    """A copy of full size whose filters and batch norms are zero for the channel groups ``removed``."""
    net = copy.deepcopy(net)
    for path, member in channel_groups.members.items():
        mask = channel_groups.kept(member.outputs, removed)
        module = net.get_submodule(path)
        for tensor in (module.weight, module.bias):
            if isinstance(tensor, Tensor):
                tensor[~mask.to(tensor.device)] = 0
    return net


@torch.no_grad()
def _shrink(module: nn.Module, kept: Kept) -> None:
    """Removes channels from a layer, in place."""
    weight = module.weight
    if kept.outputs is not None:
        for name in ("weight", "bias", "running_mean", "running_var"):
            if isinstance(getattr(module, name, None), Tensor):
                _pick(module, name, kept.outputs, dim=0)
        _set_size(module, ("out_channels", "out_features", "num_features"), len(kept.outputs))
    if isinstance(module, _BatchNorm):
        return
    depthwise = getattr(module, "groups", 1) > 1
    if kept.inputs is not None and isinstance(weight, Tensor):
        if not depthwise:
            _pick(module, "weight", kept.inputs, dim=1)
        _set_size(module, ("in_channels", "in_features"), len(kept.inputs))
        if depthwise:
            _set_size(module, ("groups",), len(kept.inputs))


def _pick(module: nn.Module, name: str, indices: Iterable[int], dim: int) -> None:
    old = getattr(module, name)
    picked = old.index_select(dim, torch.tensor(tuple(indices), device=old.device))
    if isinstance(old, nn.Parameter):
        setattr(module, name, nn.Parameter(picked, requires_grad=old.requires_grad))
    else:
        setattr(module, name, picked)


def _set_size(module: nn.Module, names: tuple[str, ...], size: int) -> None:
    for name in names:
        if hasattr(module, name):
            setattr(module, name, size)


def _opened(channels: int, kept: Kept | None) -> Tensor:
    opened = torch.ones(channels)
    if kept is not None and kept.outputs is not None:
        opened.zero_()[list(kept.outputs)] = 1
    return opened


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
