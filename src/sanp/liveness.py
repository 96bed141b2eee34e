"""Which channels are live, as boolean columns over the gates: union for addition, intersection for multiplication.

A column is a number: 0 is always live, 1 is always zero, then one column for each channel of each gate, then the
columns that additions and multiplications made of others. A tensor of columns says of every channel when it is zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

LIVE, ZERO = 0, 1


@dataclass(frozen=True)
class Block:
    """New columns from pairs of older ones: live if either is (union), or only if both are (intersection)."""

    kind: Literal["union", "intersection"]
    left: Tensor
    right: Tensor


@dataclass
class Columns:
    """All columns of a network: what each gate's channels are called, and how the others derive from them."""

    gates: dict[str, tuple[int, int]] = field(default_factory=dict)
    """name of a gated layer to its first column and its number of channels"""
    blocks: list[Block | str] = field(default_factory=list)
    """in order of their columns: a gate's name, or how a block of new columns derives from older ones"""
    width: int = 2
    _known: dict[tuple[str, int, int], int] = field(default_factory=dict, repr=False)

    def add_gate(self, name: str, channels: int) -> Tensor:
        """Columns for a new gate's channels."""
        first = self.width
        self.gates[name] = (first, channels)
        self.blocks.append(name)
        self.width += channels
        return torch.arange(first, self.width)

    def union(self, left: Tensor, right: Tensor) -> Tensor:
        """Columns of a sum: zero only where both operands are. The shapes broadcast."""
        return self._combine("union", left, right, neutral=ZERO, absorbing=LIVE)

    def intersection(self, left: Tensor, right: Tensor) -> Tensor:
        """Columns of a product: zero where either factor is. The shapes broadcast."""
        return self._combine("intersection", left, right, neutral=LIVE, absorbing=ZERO)

    def _combine(
        self, kind: Literal["union", "intersection"], left: Tensor, right: Tensor, *, neutral: int, absorbing: int
    ) -> Tensor:
        left, right = torch.broadcast_tensors(left, right)
        small_left, small_right = _unrepeated(left, right)
        low, high = torch.minimum(small_left, small_right), torch.maximum(small_left, small_right)
        code = low.long() * (1 << 31) + high.long()
        pairs, where = torch.unique(code, return_inverse=True)
        made: list[int] = []
        new_pairs: list[tuple[int, int]] = []
        for pair in pairs.tolist():
            a, b = divmod(pair, 1 << 31)
            if absorbing in (a, b):
                made.append(absorbing)
            elif a == b or neutral in (a, b):
                made.append(b if a == neutral else a)
            else:
                key = (kind, a, b)
                if key not in self._known:
                    self._known[key] = self.width + len(new_pairs)
                    new_pairs.append((a, b))
                made.append(self._known[key])
        if new_pairs:
            both = torch.tensor(new_pairs)
            self.blocks.append(Block(kind, both[:, 0], both[:, 1]))
            self.width += len(new_pairs)
        return torch.tensor(made, dtype=left.dtype)[where].expand(left.shape)

    def evaluate(self, decisions: Mapping[str, Tensor]) -> Tensor:
        """Every column's value for every sample, from the gates' decisions; soft ones are joined as a + b - ab."""
        first = next(iter(decisions.values()))
        fixed = first.new_zeros(len(first), 2)
        fixed[:, LIVE] = 1
        pool = [fixed]
        for block in self.blocks:
            if isinstance(block, str):
                pool.append(decisions[block])
                continue
            known = torch.cat(pool, 1)
            left, right = known[:, block.left], known[:, block.right]
            pool = [known, left + right - left * right if block.kind == "union" else left * right]
        return torch.cat(pool, 1)  # (N, width)


def _unrepeated(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both without the dimensions along which both merely repeat: a map's columns are mostly the same everywhere."""
    for dim in range(left.dim()):
        if left.stride(dim) == 0 and right.stride(dim) == 0 and left.shape[dim] > 1:
            left, right = left.narrow(dim, 0, 1), right.narrow(dim, 0, 1)
    return left, right


@dataclass(frozen=True)
class OpenChannels:
    """The live channels of one tensor, from the gates of a forward; what a depthwise convolution follows."""

    columns: Columns
    which: Tensor

    def __call__(self, applied: Mapping[str, Tensor]) -> Tensor:
        """(N, C): each channel's gate."""
        missing = self.columns.gates.keys() - applied.keys()
        if missing:  # gates that come later in the forward cannot matter here
            sample = next(iter(applied.values()))
            later = {name: sample.new_zeros(len(sample), self.columns.gates[name][1]) for name in missing}
            applied = {**applied, **later}
        return self.columns.evaluate(applied)[:, self.which]
