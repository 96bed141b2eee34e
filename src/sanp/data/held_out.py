"""Held-out images: training images that are kept apart, to choose settings by without looking at the test images."""

from dataclasses import replace

import torch

from sanp.core.checks import is_finite, is_whole
from sanp.core.errors import SanpError, shown
from sanp.data.dataset import Dataset
from sanp.data.split import Examples


def hold_out(dataset: Dataset, amount: float) -> Dataset:
    """The data set ``dataset`` with some training images held out; ``amount`` is their number, or below 1 a share."""
    rest, held_out = split_off(dataset.train, amount)
    return replace(dataset, train=rest, held_out=held_out)


def split_off(examples: Examples, amount: float) -> tuple[Examples, Examples]:
    """The examples without those that are split off, and these; ``amount`` is their number, or below 1 their share.

    Every class loses the same share, to within one image. The same images are split off in every run, whatever its
    seed: a network that was trained without them can be used by another run.
    """
    count, every = held_out_count(amount, len(examples)), len(examples)
    order = torch.randperm(every, generator=torch.Generator().manual_seed(0))
    by_class = order[examples.labels[order].argsort(stable=True)]
    chosen = torch.zeros(every, dtype=torch.bool)
    chosen[by_class[(2 * torch.arange(count) + 1) * every // (2 * count)]] = True  # evenly spaced
    return examples.take((~chosen).nonzero()[:, 0]), examples.take(chosen.nonzero()[:, 0])


def held_out_count(amount: float, every: int) -> int:
    """How many of ``every`` images an amount is: a number of images, or below 1 their share."""
    check_amount(amount)
    count = round(amount * every) if amount < 1 else int(amount)
    if not 2 <= count <= every - 2:
        raise SanpError(
            f"validate {shown(amount)} holds out {count} of {every} training images: hold out at least 2 and leave 2"
        )
    return count


def check_amount(amount: float) -> None:
    """Raises an error if this is neither a number of images nor a share of them."""
    share = isinstance(amount, float) and is_finite(amount) and 0 < amount < 1
    if not share and not is_whole(amount, 2):
        raise SanpError(f"validate is {shown(amount)}: give a number of images, 2 or more, or a share such as 0.1")
