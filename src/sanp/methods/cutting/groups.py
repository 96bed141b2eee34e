"""Channel groups: channels that can only be removed together, and the FLOPs that are left without some of them.

Every output channel of a convolution or linear layer has an id (given in find_groups.py). Ids are joined to groups by
union-find. The lowest id of a group is the id of the group.
"""

from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.gating.flops import conv_flops

FIXED = 0
"""the group of everything that cannot be removed"""


@dataclass
class GroupedLayer:
    """One layer from which channels can be cut, with the ids of its channels."""

    module: nn.Module
    inputs: Tensor | None
    """(C_in,): the ids of its input channels; None for a batch norm"""
    outputs: Tensor
    """(C_out,): the ids of its output channels"""
    positions: int = 0
    """how often its kernel is applied in one forward, of a convolution or a pointwise linear layer; 0 for others"""

    @property
    def is_conv(self) -> bool:
        """Whether it is a convolution that ran."""
        return self.positions > 0 and not isinstance(self.module, nn.Linear)


@dataclass
class ChannelGroups:
    """All layers that a cut would change, by module path, and the groups of their channels."""

    members: dict[str, GroupedLayer] = field(default_factory=dict)
    norm_of: dict[str, str] = field(default_factory=dict)
    """path of a convolution to the path of the batch norm that is the only reader of its output"""
    parent: list[int] = field(default_factory=lambda: [FIXED])
    """the union-find forest: each id's parent; an id that is its own parent names a group"""
    added: set[int] = field(default_factory=set)
    """ids that an addition has joined with others"""
    other_flops: int = 0
    """FLOPs of convolutions that are not modules, which cannot be cut"""

    def group_of(self, channel: int) -> int:
        """The group of a channel, by its id."""
        while self.parent[channel] != channel:
            self.parent[channel] = self.parent[self.parent[channel]]
            channel = self.parent[channel]
        return channel

    def groups_of(self, ids: Tensor) -> Tensor:
        """The group of each of these channels, by their ids."""
        return torch.tensor([self.group_of(channel) for channel in ids.tolist()], dtype=torch.long)

    def new(self, count: int) -> Tensor:
        """The ids of ``count`` new channels, each of which is a group of its own."""
        first = len(self.parent)
        self.parent.extend(range(first, first + count))
        return torch.arange(first, first + count)

    def join(self, left: int, right: int) -> bool:
        """Joins the groups of two ids; returns whether they were different groups."""
        low, high = sorted((self.group_of(left), self.group_of(right)))
        self.parent[high] = low  # FIXED is the lowest id, so a group that is joined with it becomes FIXED
        return low != high

    def fix(self, ids: Tensor) -> None:
        """Marks the groups of these ids as not removable."""
        for channel in ids.unique().tolist():
            self.join(FIXED, channel)

    @property
    def convs(self) -> dict[str, GroupedLayer]:
        """The convolutions, in order of execution."""
        return {path: member for path, member in self.members.items() if member.is_conv}

    def removable(self, path: str) -> Tensor:
        """Whether each output channel of the convolution at ``path`` can be removed (C_out,)."""
        return self.groups_of(self.members[path].outputs) != FIXED

    def flops(self, removed: set[int]) -> int:
        """FLOPs of the network without the groups ``removed``."""
        return self.other_flops + sum(self.layer_flops(removed).values())

    def layer_flops(self, removed: set[int]) -> dict[str, int]:
        """FLOPs of each convolution and pointwise linear layer, by path, without the groups ``removed``."""
        found = {}
        for path, member in self.members.items():
            if not member.positions:
                continue
            assert member.inputs is not None
            inputs, outputs = (int(self.kept(side, removed).sum()) for side in (member.inputs, member.outputs))
            groups, taps = 1, 1
            if member.is_conv:
                groups, taps = convolution(member.module).groups, prod(convolution(member.module).kernel_size)
            per_group = 1 if groups == len(member.inputs) else inputs // groups
            found[path] = conv_flops(member.positions, per_group, taps, outputs)
        return found

    def kept(self, ids: Tensor, removed: set[int]) -> Tensor:
        """Whether each of these channels, given by id, is left without the groups ``removed``."""
        return torch.tensor([self.group_of(channel) not in removed for channel in ids.tolist()])


def convolution(module: nn.Module) -> nn.Conv2d:
    """The module itself, typed as a convolution, for the attributes that convolutions of all dimensions have."""
    return module  # type: ignore[return-value]


def check_removable(channel_groups: ChannelGroups, net: nn.Module) -> None:
    """Raises an error if no channel of the network ``net`` can be removed."""
    if not any(bool(channel_groups.removable(path).any()) for path in channel_groups.convs):
        raise SanpError(
            f"{type(net).__name__} has no channel that can be taken out: each is read by something that would miss it; "
            "choose a method that gates, such as sanp"
        )
