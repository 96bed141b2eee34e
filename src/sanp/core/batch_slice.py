"""Which rows of the whole batch this process has: what is drawn for each sample is drawn for all of them.

So random numbers do not depend on how many processes share a batch, and all of them stay at the same place in the
same sequence, which a checkpoint can keep once for any number of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """The samples from ``start`` to before ``stop`` of a batch of ``total``."""

    start: int
    stop: int
    total: int

    @property
    def share(self) -> float:
        """This process's part of the batch."""
        return (self.stop - self.start) / self.total

    def of(self, count: int) -> "Rows | None":
        """The same rows of a tensor with ``count`` here; None if those are not so many for each sample."""
        each, rest = divmod(count, self.stop - self.start)
        return None if rest or not each else Rows(each * self.start, each * self.stop, each * self.total)


_own: ContextVar[Rows | None] = ContextVar("own", default=None)


def own_rows() -> Rows | None:
    """The rows of this process while it trains on a batch with others; None otherwise."""
    return _own.get()


@contextmanager
def having(rows: Rows) -> Iterator[None]:
    """Inside, this process has these rows of the whole batch."""
    token = _own.set(rows)
    try:
        yield
    finally:
        _own.reset(token)


def draw(sample: Callable[[tuple[int, ...]], Tensor], shape: Sequence[int]) -> Tensor:
    """``sample(shape)`` for a shape with a row for each sample here: drawn for the whole batch, these rows given."""
    own = own_rows()
    rows = None if own is None else own.of(shape[0])
    if rows is None:
        return sample(tuple(shape))
    return sample((rows.total, *shape[1:]))[rows.start : rows.stop]
