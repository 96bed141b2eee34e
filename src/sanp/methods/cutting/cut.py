"""Physically smaller networks: channels taken out of every tensor that has a place for them, nothing masked.

:func:`masked` is the slow twin: the network in full size with those channels held at zero. Both give the same output.
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

SAME = 1e-5
"""how far the cut network may be from the masked one, relative to the largest output"""


@dataclass(frozen=True)
class Kept:
    """The channels of one layer that are left: indices into its inputs and outputs; None where all are."""

    inputs: tuple[int, ...] | None
    outputs: tuple[int, ...] | None


class CutNetwork(nn.Module):
    """A network without some of its channels; called like the original, and it knows what that one cost."""

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
        """Nothing has to be decided."""
        return 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The smaller network's own forward."""
        return self.net(*args, **kwargs)


def cut(net: nn.Module, channel_groups: ChannelGroups, removed: set[int], example: Any, *, method: str) -> CutNetwork:
    """A copy of ``net`` without these channels, checked against the masked one; ``net`` is left as it was."""
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
            wanted, found, rtol=0, atol=SAME * max(1.0, float(wanted.abs().max()))
        ):
            raise SanpError(
                f"{type(net).__name__} gives something else with fewer channels than with those channels at zero: "
                "its forward counts on their number; choose a method that gates, such as sanp"
            )
    return smaller


def kept_channels(channel_groups: ChannelGroups, removed: set[int]) -> dict[str, Kept]:
    """What is left of each layer that loses something."""
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
    """A copy in full size whose filters and batch norms are zero where a channel is removed."""
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
    """Takes channels out of a layer, in place."""
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
