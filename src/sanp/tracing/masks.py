"""Symbolic masks: each channel has the id of a boolean expression over the gates that says when the channel is live.

Id 0 means always live, id 1 always zero. Every channel of every gate has an id, and so has every expression that
operators make of others: OR after an addition (a sum is zero where both operands are zero), AND after a product.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

LIVE, ZERO = 0, 1
_PAIR = 1 << 31
"""ids are below this, so that a pair of them fits into one 64-bit number and torch.unique can find equal pairs"""


@dataclass(frozen=True)
class Block:
    """A block of new mask ids, each made of two older ones."""

    kind: Literal["union", "intersection"]
    """a union is live if either of the two is, an intersection only if both are"""
    left: Tensor
    """the first older id of each new one"""
    right: Tensor
    """the second"""


@dataclass
class MaskTable:
    """All mask ids of a network: those of the gates' channels, and how the other ids are made of them."""

    gates: dict[str, tuple[int, int]] = field(default_factory=dict)
    """name of a gated layer to the mask id of its first channel and its number of channels"""
    blocks: list[Block | str] = field(default_factory=list)
    """all ids from 2 on, in order: a gate's name stands for the ids of its channels, a Block for ids made of others"""
    width: int = 2
    """the number of ids"""
    _known: dict[tuple[str, int, int], int] = field(default_factory=dict, repr=False)

    def add_gate(self, name: str, channels: int) -> Tensor:
        """Makes and returns the ids (channels,) of a new gate; ``name`` is its layer."""
        first = self.width
        self.gates[name] = (first, channels)
        self.blocks.append(name)
        self.width += channels
        return torch.arange(first, self.width)

    def union(self, left: Tensor, right: Tensor) -> Tensor:
        """The ids of a sum, which is zero only where both operands are; the shapes broadcast."""
        return self._combine("union", left, right, neutral=ZERO, absorbing=LIVE)

    def intersection(self, left: Tensor, right: Tensor) -> Tensor:
        """The ids of a product, which is zero where either factor is; the shapes broadcast."""
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
        """The first id of each block."""
        starts, first = [], 2
        for block in self.blocks:
            starts.append(first)
            first += self.gates[block][1] if isinstance(block, str) else len(block.left)
        return starts


def _unrepeated(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors with size 1 in the dimensions along which both are expanded.

    This saves time, since the ids of a channel are mostly the same at all positions of its map.
    """
    for dim in range(left.dim()):
        if left.stride(dim) == 0 and right.stride(dim) == 0 and left.shape[dim] > 1:
            left, right = left.narrow(dim, 0, 1), right.narrow(dim, 0, 1)
    return left, right


@dataclass(frozen=True)
class _Gather:
    """Picks the values of some ids out of the values of the blocks that hold them."""

    blocks: tuple[int, ...]
    """indices of the blocks"""
    order: Tensor | None
    """places of the wanted ids in the values of all these blocks, joined; None takes them as they are"""

    def __call__(self, values: Mapping[int, Tensor]) -> Tensor:
        parts = [values[block] for block in self.blocks]
        if len(parts) > 1:  # by shape, not by len: otherwise torch.export would fix the batch size
            (samples,) = torch.broadcast_shapes(*(part.shape[:1] for part in parts))
            parts = [torch.cat([part.expand(samples, -1) for part in parts], 1)]
        (whole,) = parts
        return whole if self.order is None else whole[:, self.order.to(whole.device)]


_FIXED = -1
"""stands for the index of the block of the ids LIVE and ZERO"""


class Liveness:
    """Computes masks for each sample from the decisions of the gates.

    ``masks`` is the table of all ids, ``wanted`` a list of id tensors (C,), one for each mask to compute. The masks are
    computed at every training step, so what they need is found only once, here.
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
        """the gates that the wanted masks depend on"""

    def __call__(self, decisions: Mapping[str, Tensor]) -> list[Tensor]:
        """The wanted masks (N or 1, C): 1 where a channel is live, 0 where it is zero.

        ``decisions`` maps each gate to its decisions (N, C). They may be soft: then OR is a + b - ab and AND is ab.
        """
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
    """The live channels of one tensor, computed from the gates of a forward; a depthwise convolution uses it.

    ``masks`` is the table of all ids, ``which`` holds the id of each channel (C,).
    """

    def __init__(self, masks: MaskTable, which: Tensor) -> None:
        self._liveness = Liveness(masks, [which])
        self.gates = {name: masks.gates[name][1] for name in self._liveness.gates}
        """the gates that the mask depends on, with their number of channels"""

    def __call__(self, applied: Mapping[str, Tensor]) -> Tensor:
        """The gate of each channel (N or 1, C).

        ``applied`` maps layers to the gates (N, C) that the forward used. A layer that did not run, for example under
        stochastic depth, counts as closed.
        """
        missing = self.gates.keys() - applied.keys()
        if missing:
            like = next(iter(applied.values()), torch.zeros(()))
            applied = {**applied, **{name: like.new_zeros(1, self.gates[name]) for name in missing}}
        return self._liveness(applied)[0]
