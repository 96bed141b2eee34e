"""Symbolic masks: every channel has the id of a boolean expression over the gates that says when it is live.

Id 0 is always live, id 1 always zero. Then come one id for each channel of each gate, and one for each expression that
operators made of others: OR after an addition (a sum is zero where both operands are), AND after a product.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

LIVE, ZERO = 0, 1
_PAIR = 1 << 31
"""two ids below this are one whole number of 64 bits, so that torch.unique finds the pairs that differ"""


@dataclass(frozen=True)
class Block:
    """New mask ids from pairs of older ones: live if either is (union), or only if both are (intersection)."""

    kind: Literal["union", "intersection"]
    left: Tensor
    right: Tensor


@dataclass
class MaskTable:
    """All mask ids of a network: those of each gate's channels, and how the others derive from them."""

    gates: dict[str, tuple[int, int]] = field(default_factory=dict)
    """name of a gated layer to its first mask id and its number of channels"""
    blocks: list[Block | str] = field(default_factory=list)
    """in order of their ids: a gate's name, or how a block of new ids derives from older ones"""
    width: int = 2
    """how many ids there are"""
    _known: dict[tuple[str, int, int], int] = field(default_factory=dict, repr=False)

    def add_gate(self, name: str, channels: int) -> Tensor:
        """Ids for a new gate's channels."""
        first = self.width
        self.gates[name] = (first, channels)
        self.blocks.append(name)
        self.width += channels
        return torch.arange(first, self.width)

    def union(self, left: Tensor, right: Tensor) -> Tensor:
        """Ids for a sum: zero only where both operands are. The shapes broadcast."""
        return self._combine("union", left, right, neutral=ZERO, absorbing=LIVE)

    def intersection(self, left: Tensor, right: Tensor) -> Tensor:
        """Ids for a product: zero where either factor is. The shapes broadcast."""
        return self._combine("intersection", left, right, neutral=LIVE, absorbing=ZERO)

    def _combine(
        self, kind: Literal["union", "intersection"], left: Tensor, right: Tensor, *, neutral: int, absorbing: int
    ) -> Tensor:
        left, right = torch.broadcast_tensors(left, right)
        small_left, small_right = _unrepeated(left, right)
        low, high = torch.minimum(small_left, small_right), torch.maximum(small_left, small_right)
        code = low.long() * _PAIR + high.long()
        pairs, where = torch.unique(code, return_inverse=True)
        made: list[int] = []
        new_pairs: list[tuple[int, int]] = []
        for pair in pairs.tolist():
            a, b = divmod(pair, _PAIR)
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

    def block_starts(self) -> list[int]:
        """The first id of each block, after the two fixed ones."""
        starts, first = [], 2
        for block in self.blocks:
            starts.append(first)
            first += self.gates[block][1] if isinstance(block, str) else len(block.left)
        return starts


def _unrepeated(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both with size 1 in the dimensions along which both are expanded: ids are mostly the same all over a map."""
    for dim in range(left.dim()):
        if left.stride(dim) == 0 and right.stride(dim) == 0 and left.shape[dim] > 1:
            left, right = left.narrow(dim, 0, 1), right.narrow(dim, 0, 1)
    return left, right


@dataclass(frozen=True)
class _Gather:
    """Picks some ids' values out of those of a few blocks; ``order`` None takes the blocks as they are."""

    blocks: tuple[int, ...]
    order: Tensor | None

    def __call__(self, values: Mapping[int, Tensor]) -> Tensor:
        parts = [values[block] for block in self.blocks]
        if len(parts) > 1:  # shape, not len: torch.export keeps a batch of any size only so
            (samples,) = torch.broadcast_shapes(*(part.shape[:1] for part in parts))
            parts = [torch.cat([part.expand(samples, -1) for part in parts], 1)]
        (whole,) = parts
        return whole if self.order is None else whole[:, self.order.to(whole.device)]


_FIXED = -1
"""the block of the two fixed ids"""


class Liveness:
    """Evaluates the masks of some ids for each sample from the gates' decisions.

    This runs at every training step: which blocks are needed, and where in them, is found once.
    """

    def __init__(self, masks: MaskTable, wanted: Sequence[Tensor]) -> None:
        self._masks = masks
        self._starts = masks.block_starts()
        self._wanted = [self._gather(which) for which in wanted]
        self._sides: dict[int, tuple[_Gather, _Gather]] = {}
        needed = {block for gather in self._wanted for block in gather.blocks}
        for index in range(len(masks.blocks) - 1, -1, -1):
            block = masks.blocks[index]
            if index in needed and isinstance(block, Block):
                self._sides[index] = self._gather(block.left), self._gather(block.right)
                needed.update(self._sides[index][0].blocks, self._sides[index][1].blocks)
        self._needed = sorted(needed)
        self.gates = tuple(name for index in self._needed if isinstance(name := self._block(index), str))
        """the gates whose decisions matter"""

    def __call__(self, decisions: Mapping[str, Tensor]) -> list[Tensor]:
        """(N or 1, C) for each of the wanted: 1 where a channel is live; soft decisions are joined as a + b - ab."""
        values: dict[int, Tensor] = {}
        for index in self._needed:
            block = self._block(index)
            if block is None:
                fixed = torch.tensor([[1.0, 0.0]])  # LIVE, ZERO
                values[index] = fixed.to(next(iter(decisions.values()))) if decisions else fixed
            elif isinstance(block, str):
                values[index] = decisions[block]
            else:
                left, right = (side(values) for side in self._sides[index])
                values[index] = left + right - left * right if block.kind == "union" else left * right
        return [gather(values) for gather in self._wanted]

    def _block(self, index: int) -> Block | str | None:
        return None if index == _FIXED else self._masks.blocks[index]

    def _gather(self, which: Tensor) -> _Gather:
        numbers = which.tolist()
        block_of = [bisect_right(self._starts, mask) - 1 for mask in numbers]  # _FIXED before the first
        blocks = tuple(dict.fromkeys(block_of))
        ends = [*self._starts, self._masks.width]
        before, offsets = 0, {}
        for block in blocks:
            first = 0 if block == _FIXED else self._starts[block]
            offsets[block] = before - first
            before += ends[block + 1] - first
        order = [mask + offsets[block] for mask, block in zip(numbers, block_of, strict=True)]
        return _Gather(blocks, None if order == list(range(before)) else torch.tensor(order, dtype=torch.long))


class OpenChannels:
    """The live channels of one tensor, from the gates of a forward; what a depthwise convolution follows."""

    def __init__(self, masks: MaskTable, which: Tensor) -> None:
        self._liveness = Liveness(masks, [which])
        self.gates = {name: masks.gates[name][1] for name in self._liveness.gates}
        """the gates that decide, with their number of channels"""

    def __call__(self, applied: Mapping[str, Tensor]) -> Tensor:
        """(N or 1, C): each channel's gate; a layer that did not run, as under stochastic depth, has none open."""
        missing = self.gates.keys() - applied.keys()
        if missing:
            like = next(iter(applied.values()), torch.zeros(()))
            applied = {**applied, **{name: like.new_zeros(1, self.gates[name]) for name in missing}}
        return self._liveness(applied)[0]
