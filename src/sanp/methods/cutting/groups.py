"""Channel groups: channels that can only be removed together, and what is left of the cost without some of them.

Every output channel of a convolution or linear layer has an id (find_groups.py gives them). Ids are joined to groups by
union-find; a group is named by the lowest of its ids.
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
    """One layer whose tensors have a place for each channel: the ids of its inputs and outputs."""

    module: nn.Module
    inputs: Tensor | None
    outputs: Tensor
    positions: int = 0
    """how many times a convolution's kernel is applied in one forward; 0 for other layers"""


@dataclass
class ChannelGroups:
    """All layers that a cut would change, by module path, and the groups of their channels."""

    members: dict[str, GroupedLayer] = field(default_factory=dict)
    norm_of: dict[str, str] = field(default_factory=dict)
    """path of a convolution to that of the batch norm that alone reads it"""
    parent: list[int] = field(default_factory=lambda: [FIXED])
    added: set[int] = field(default_factory=set)
    """ids that an addition has joined to another layer's"""
    other_flops: int = 0
    """of convolutions that are no module of their own: never cut, counted"""

    def group_of(self, channel: int) -> int:
        """The group that a channel belongs to."""
        while self.parent[channel] != channel:
            self.parent[channel] = self.parent[self.parent[channel]]
            channel = self.parent[channel]
        return channel

    def groups_of(self, ids: Tensor) -> Tensor:
        """The group of each of these channels."""
        return torch.tensor([self.group_of(channel) for channel in ids.tolist()], dtype=torch.long)

    def new(self, count: int) -> Tensor:
        """Ids for so many new channels, each a group of its own."""
        first = len(self.parent)
        self.parent.extend(range(first, first + count))
        return torch.arange(first, first + count)

    def join(self, left: int, right: int) -> bool:
        """Lets two ids only go together; says whether they were apart."""
        low, high = sorted((self.group_of(left), self.group_of(right)))
        self.parent[high] = low  # FIXED is the lowest: what is tied to it stays
        return low != high

    def fix(self, ids: Tensor) -> None:
        """Keeps these in the network."""
        for channel in ids.unique().tolist():
            self.join(FIXED, channel)

    @property
    def convs(self) -> dict[str, GroupedLayer]:
        """The convolutions, in order of execution."""
        return {path: member for path, member in self.members.items() if member.positions}

    def removable(self, path: str) -> Tensor:
        """Of each output of a convolution: may it go? (C_out,)"""
        return self.groups_of(self.members[path].outputs) != FIXED

    def flops(self, removed: set[int]) -> int:
        """FLOPs of the network without these ids (group ids)."""
        return self.other_flops + sum(self.layer_flops(removed).values())

    def layer_flops(self, removed: set[int]) -> dict[str, int]:
        """FLOPs of each convolution without these ids (group ids)."""
        found = {}
        for path, member in self.convs.items():
            assert member.inputs is not None
            inputs, outputs = (int(self.kept(side, removed).sum()) for side in (member.inputs, member.outputs))
            groups, taps = convolution(member.module).groups, prod(convolution(member.module).kernel_size)
            per_group = 1 if groups == len(member.inputs) else inputs // groups
            found[path] = conv_flops(member.positions, per_group, taps, outputs)
        return found

    def kept(self, ids: Tensor, removed: set[int]) -> Tensor:
        """Of each channel: is it left in the network?"""
        return torch.tensor([self.group_of(channel) not in removed for channel in ids.tolist()])


def convolution(module: nn.Module) -> nn.Conv2d:
    """A convolution of any number of dimensions, typed for the attributes that all have."""
    return module  # type: ignore[return-value]


def check_removable(channel_groups: ChannelGroups, net: nn.Module) -> None:
    """An error if there is no channel that static pruning could take out."""
    if not any(bool(channel_groups.removable(path).any()) for path in channel_groups.convs):
        raise SanpError(
            f"{type(net).__name__} has no channel that can be taken out: each is read by something that would miss it; "
            "choose a method that gates, such as sanp"
        )
