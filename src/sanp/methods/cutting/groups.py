"""Channels that can only be taken out together: what static pruning may remove, and what is left of the cost.

Every output channel of a convolution or linear layer has an identity; see follow.py for how identities are found.
"""

from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.gating.flops import conv_flops

FIXED = 0
"""The identity of everything that cannot be taken out."""


@dataclass
class Member:
    """One layer whose tensors have a place for each channel: the identities of its inputs and outputs."""

    module: nn.Module
    inputs: Tensor | None
    outputs: Tensor
    positions: int = 0
    """how many times a convolution's kernel is applied in one forward; 0 for other layers"""


@dataclass
class Coupling:
    """All layers that a cut would change, by module path, and which identities may go."""

    members: dict[str, Member] = field(default_factory=dict)
    norm_of: dict[str, str] = field(default_factory=dict)
    """path of a convolution to that of the batch norm that alone reads it"""
    parent: list[int] = field(default_factory=lambda: [FIXED])
    added: set[int] = field(default_factory=set)
    """identities that an addition has tied to another layer's"""
    other_flops: int = 0
    """of convolutions that are no module of their own: never cut, counted"""

    def root(self, identity: int) -> int:
        """The one identity that stands for all that are tied to it."""
        while self.parent[identity] != identity:
            self.parent[identity] = self.parent[self.parent[identity]]
            identity = self.parent[identity]
        return identity

    def roots(self, identities: Tensor) -> Tensor:
        """As :meth:`root`, for each."""
        return torch.tensor([self.root(identity) for identity in identities.tolist()], dtype=torch.long)

    def new(self, count: int) -> Tensor:
        """Fresh identities."""
        first = len(self.parent)
        self.parent.extend(range(first, first + count))
        return torch.arange(first, first + count)

    def tie(self, left: int, right: int) -> bool:
        """Lets two identities only go together; says whether they were apart."""
        low, high = sorted((self.root(left), self.root(right)))
        self.parent[high] = low  # FIXED is the lowest: what is tied to it stays
        return low != high

    def fix(self, identities: Tensor) -> None:
        """Keeps these in the network."""
        for identity in identities.unique().tolist():
            self.tie(FIXED, identity)

    @property
    def convs(self) -> dict[str, Member]:
        """The convolutions, in order of execution."""
        return {path: member for path, member in self.members.items() if member.positions}

    def removable(self, path: str) -> Tensor:
        """Of each output of a convolution: may it go? (C_out,)"""
        return self.roots(self.members[path].outputs) != FIXED

    def flops(self, gone: set[int]) -> int:
        """FLOPs of the network without these identities (roots)."""
        return self.other_flops + sum(self.layer_flops(gone).values())

    def layer_flops(self, gone: set[int]) -> dict[str, int]:
        """FLOPs of each convolution without these identities (roots)."""
        found = {}
        for path, member in self.convs.items():
            assert member.inputs is not None
            inputs, outputs = (int(self.kept(side, gone).sum()) for side in (member.inputs, member.outputs))
            groups, taps = convolution(member.module).groups, prod(convolution(member.module).kernel_size)
            per_group = 1 if groups == len(member.inputs) else inputs // groups
            found[path] = conv_flops(member.positions, per_group, taps, outputs)
        return found

    def kept(self, identities: Tensor, gone: set[int]) -> Tensor:
        """Of each identity: is it left in the network?"""
        return torch.tensor([self.root(identity) not in gone for identity in identities.tolist()])


def convolution(module: nn.Module) -> nn.Conv2d:
    """A convolution of any number of dimensions, typed for the attributes that all have."""
    return module  # type: ignore[return-value]


def check_removable(coupling: Coupling, net: nn.Module) -> None:
    """An error if there is no channel that static pruning could take out."""
    if not any(bool(coupling.removable(path).any()) for path in coupling.convs):
        raise SanpError(
            f"{type(net).__name__} has no channel that can be taken out: each is read by something that would miss it; "
            "choose a method that gates, such as sanp"
        )
