"""The slice of the batch that this process trains on, and random numbers that do not depend on how it is sliced.

Every process draws the numbers for the whole batch and uses its own slice of them. So the numbers are the same for any
number of processes, all random generators stay in step, and a checkpoint needs only one generator state.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class BatchSlice:
    """The samples from ``start`` up to, but without, ``stop`` of a batch of ``total`` samples."""

    start: int
    stop: int
    total: int

    @property
    def share(self) -> float:
        """The share of the batch's samples that this process has."""
        return (self.stop - self.start) / self.total

    def of(self, count: int) -> "BatchSlice | None":
        """The slice of a tensor's first dimension, of which this process has ``count`` entries.

        A tensor may have several entries for a sample, for example crops, but the same number for each sample. None if
        ``count`` is not a multiple of the number of samples.
        """
        each, rest = divmod(count, self.stop - self.start)
        return None if rest or not each else BatchSlice(each * self.start, each * self.stop, each * self.total)


_own: ContextVar[BatchSlice | None] = ContextVar("own", default=None)


def own_slice() -> BatchSlice | None:
    """The slice of this process while it trains together with others; None otherwise."""
    return _own.get()


@contextmanager
def using_slice(own: BatchSlice) -> Iterator[None]:
    """Inside, ``own`` is the slice of this process."""
    token = _own.set(own)
    try:
        yield
    finally:
        _own.reset(token)


def draw_for_batch(sample: Callable[[tuple[int, ...]], Tensor], shape: Sequence[int]) -> Tensor:
    """Random numbers for the samples of this process, taken from those drawn for the whole batch.

    ``sample`` draws a tensor of the shape it is given. ``shape`` is the wanted shape; its first number is how many
    samples this process has, or a multiple of that.
    """
    own = own_slice()
    here = None if own is None else own.of(shape[0])
    if here is None:
        return sample(tuple(shape))
    return sample((here.total, *shape[1:]))[here.start : here.stop]
