"""Batches for training and testing; the order and the changes of an epoch follow from the seed and its number alone."""

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from sanp.core.checks import check_kind, check_many, is_whole
from sanp.core.errors import SanpError
from sanp.data.augment import Augment, Changes, cut_out, draw_changes, shift_and_flip
from sanp.data.split import Examples, check_examples


class Batches:
    """Normalised images, float32 (B, C, H, W), and their classes, int64 (B,); an iteration is an epoch.

    ``split`` has the images. The first iteration is epoch 0, the next one epoch 1, and so on, unless ``set_epoch`` says
    which; order and changes follow from ``seed`` and the epoch. ``mean`` and ``std`` normalise the images, a number for
    each channel, of pixels in [0, 1]; ``augment`` says how they are changed at random. ``shuffle`` draws a new order
    for every epoch.

    ``batch_size`` is that of all ``world`` processes together. Each process, the ``rank``-th from 0, draws the same
    batch and gives its own slice of it, so that a last batch of fewer than ``world`` images leaves some processes with
    no image. ``drop_last`` leaves out a last batch that is smaller than the others.
    """

    def __init__(
        self,
        split: Examples,
        batch_size: int,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        augment: Augment | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        check_examples("split", split)
        check_kind("augment", augment, Augment | None, "a sanp.data.Augment")
        _check_counts(len(split), batch_size, seed, drop_last, rank, world)
        channels, height, width = split.shape
        if augment is not None:
            augment.check_fits(height, width)
        self.split, self.batch_size, self.augment = split, batch_size, augment
        self._shuffle, self._seed, self._drop_last = shuffle, seed, drop_last
        self._rank, self._world = rank, world
        self._scale, self._offset = _multiply_add(mean, std, channels)
        self._epoch = 0

    def __len__(self) -> int:
        whole, rest = divmod(len(self.split), self.batch_size)
        return whole + (rest > 0 and not self._drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.starting_at(0)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration give this epoch."""
        if not is_whole(epoch, 0):
            raise SanpError(f"epoch is {epoch!r}: give a whole number, 0 for the first")
        self._epoch = epoch

    def part(self, rank: int, world: int) -> "Batches":
        """The same batches, of which the process ``rank`` of ``world`` gets its own slice."""
        _check_counts(len(self.split), self.batch_size, self._seed, self._drop_last, rank, world)
        part = copy.copy(self)
        part._rank, part._world = rank, world
        return part

    def starting_at(self, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The next epoch without the first ``batch`` batches; the others are the same as in the whole epoch."""
        if not is_whole(batch, 0, len(self)):
            raise SanpError(f"the batch to start at is {batch!r}: give a whole number from 0 to {len(self)}")
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self._run(epoch, batch)

    def _run(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = _generator(self._seed, epoch)
        count = len(self.split)
        order = torch.randperm(count, generator=generator) if self._shuffle else torch.arange(count)
        changes = self._draw(epoch, generator)
        size = self.batch_size
        slices = [self._batch_slice(order[k * size : (k + 1) * size]) for k in range(first, len(self))]
        for positions, images in zip(slices, self.split.read(slices), strict=True):
            yield self._finish(images, changes and changes.of(positions)), self.split.labels[positions]

    def _draw(self, epoch: int, generator: torch.Generator) -> Changes | None:
        if self.augment is None:
            return None
        _, height, width = self.split.shape
        coins = torch.randint(2, (len(self.split),), generator=_generator(self._seed))
        return draw_changes(self.augment, len(coins), (height, width), coins=coins, epoch=epoch, generator=generator)

    def _batch_slice(self, positions: Tensor) -> Tensor:
        """The samples of this process; the slices of a batch differ by at most one image."""
        count = len(positions)
        return positions[count * self._rank // self._world : count * (self._rank + 1) // self._world]

    def _finish(self, images: Tensor, changes: Changes | None) -> Tensor:
        if changes is not None and self.augment is not None and (self.augment.flip or self.augment.translate):
            images = shift_and_flip(images, changes, black=self.augment.border == "zero")
        normal = images.float().mul_(self._scale).add_(self._offset)  # (B, C, H, W)
        if changes is not None and self.augment is not None and self.augment.cutout:
            cut_out(normal, changes, self.augment.cutout)
        return normal


def _generator(seed: int, *epoch: int) -> torch.Generator:
    """A generator that depends on the seed and the epoch alone; without an epoch, one for what all epochs share."""
    # SeedSequence keeps neighbouring seeds and epochs apart: seed + epoch would give seed 1 the epochs of seed 0.
    state = np.random.SeedSequence(seed, spawn_key=epoch).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def _multiply_add(mean: Sequence[float], std: Sequence[float], channels: int) -> tuple[Tensor, Tensor]:
    """Scale and offset, (C, 1, 1) each, by which x · scale + offset is (x / 255 - mean) / std."""
    for name, values in (("mean", mean), ("std", std)):
        check_many(name, values, "a number a channel")
        for value in values:
            check_kind(f"a value of {name}", value, int | float, "a number")
    middle, spread = torch.tensor(tuple(mean), dtype=torch.float64), torch.tensor(tuple(std), dtype=torch.float64)
    if middle.shape != (channels,) or spread.shape != (channels,):
        raise SanpError(
            f"{len(middle)} means and {len(spread)} stds for {channels} channels: give one of each a channel"
        )
    if not bool(middle.isfinite().all()) or not bool((spread > 0).logical_and(spread.isfinite()).all()):
        raise SanpError(f"mean is {tuple(mean)} and std {tuple(std)}: give finite numbers, and stds above 0")
    scale, offset = 1 / (255 * spread), -middle / spread
    return scale.float().view(-1, 1, 1), offset.float().view(-1, 1, 1)


def _check_counts(count: int, batch_size: int, seed: int, drop_last: bool, rank: int, world: int) -> None:
    if not is_whole(world, 1) or not is_whole(rank, 0, world - 1):
        raise SanpError(f"rank is {rank!r} of {world!r}: give a rank from 0 to world - 1, and a world of at least 1")
    if not is_whole(batch_size, world):
        raise SanpError(f"batch_size is {batch_size!r}: give a whole number, at least {world} (one image a rank)")
    if drop_last and batch_size > count:
        raise SanpError(f"batch_size is {batch_size} for {count} images, and drop_last leaves nothing: make it smaller")
    if not is_whole(seed, 0):
        raise SanpError(f"seed is {seed!r}: give a whole number, 0 or more")
