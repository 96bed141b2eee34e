"""Which slice of the whole batch this process has, and random numbers that do not depend on it.

Numbers are drawn for all samples of the batch by every process, which then takes its own slice of them. So they are the
same for any number of processes, all generators stay in step, and a checkpoint keeps one state for all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class BatchSlice:
    """The samples from ``start`` to before ``stop`` of a batch of ``total``."""

    start: int
    stop: int
    total: int

    @property
    def share(self) -> float:
        """This process's part of the batch."""
        return (self.stop - self.start) / self.total

    def of(self, count: int) -> "BatchSlice | None":
        """The slice of a tensor that has ``count`` rows here, as many for each sample; None if that does not divide."""
        each, rest = divmod(count, self.stop - self.start)
        return None if rest or not each else BatchSlice(each * self.start, each * self.stop, each * self.total)


_own: ContextVar[BatchSlice | None] = ContextVar("own", default=None)


def own_slice() -> BatchSlice | None:
    """The slice of this process while it trains on a batch with others; None otherwise."""
    return _own.get()


@contextmanager
def using_slice(own: BatchSlice) -> Iterator[None]:
    """Inside, this process has this slice of the whole batch."""
    token = _own.set(own)
    try:
        yield
    finally:
        _own.reset(token)


def draw(sample: Callable[[tuple[int, ...]], Tensor], shape: Sequence[int]) -> Tensor:
    """Our slice of ``sample(shape)`` drawn for the whole batch; ``shape`` starts with the number of our samples."""
    own = own_slice()
    here = None if own is None else own.of(shape[0])
    if here is None:
        return sample(tuple(shape))
    return sample((here.total, *shape[1:]))[here.start : here.stop]
