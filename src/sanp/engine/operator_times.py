"""Where a compiled network spends its time: each operator of its native programs, timed in the calls themselves."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sanp.core.errors import SanpError
from sanp.engine.compiled import Engine
from sanp.engine.plan import PlanRow
from sanp.engine.steps import NativeStep


@dataclass(frozen=True)
class OperatorTime:
    """One operator, and what a call of one batch takes in it."""

    row: PlanRow
    ms: float
    flops: int
    """multiply-adds for one image with every channel computed; 0 for what is neither a convolution nor a product"""


@dataclass(frozen=True)
class Profile:
    """The times of every native operator, in order of execution."""

    operators: tuple[OperatorTime, ...]
    """of all native programs"""
    images: int
    """in the batch that was timed"""

    @property
    def ms(self) -> float:
        """All operators together."""
        return sum(operator.ms for operator in self.operators)

    def by_kind(self) -> dict[str, float]:
        """Milliseconds by kind of operator, the slowest first."""
        kinds: dict[str, float] = {}
        for operator in self.operators:
            kinds[operator.row.how] = kinds.get(operator.row.how, 0.0) + operator.ms
        return dict(sorted(kinds.items(), key=lambda item: -item[1]))

    def __iter__(self) -> Iterator[OperatorTime]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def __str__(self) -> str:
        width = max((len(operator.row.layer) for operator in self), default=0)
        lines = [f"{self.ms:.3f} ms for {self.images} image{'s' * (self.images > 1)}; GMAC/s count every channel"]
        for operator in self:
            speed = (
                f"{self.images * operator.flops / operator.ms / 1e6:8.1f} GMAC/s"
                if operator.flops and operator.ms
                else ""
            )
            row = operator.row
            lines.append(
                f"{row.layer:<{width}}  {row.how:<18}  {row.detail:<30}  {operator.ms:8.4f} ms  {speed}".rstrip()
            )
        lines += [f"{how:<{width}}  {ms:8.4f} ms  {ms / self.ms:6.1%}" for how, ms in self.by_kind().items()]
        return "\n".join(lines)


def profile(engine: Engine, x: Tensor | np.ndarray, *, calls: int = 20) -> Profile:
    """Times every operator of a compiled network on a batch: the median of ``calls`` calls.

    ``engine`` is what :func:`sanp.compile` gave, and must run natively as a whole; ``x`` is a batch that it takes,
    a torch tensor or a numpy array.
    """
    step = engine.only
    if step is None:
        raise SanpError("parts of this network run in torch: only a network that is one native program has a profile")
    if calls < 1:
        raise SanpError(f"calls={calls} was given: wanted is at least one")
    engine(x)  # refuses what it was not compiled for
    batch = np.ascontiguousarray(torch.as_tensor(x).detach().numpy(), dtype=np.float32)
    times = np.zeros((calls, step.program.operators))
    step.program.run([batch], step.threads)
    for seconds in times:
        step.program.run([batch], step.threads, seconds=seconds)
    middle = 1e3 * np.median(times, axis=0)
    return Profile(_rows(step, middle.tolist()), len(batch))


def _rows(step: NativeStep, ms: list[float]) -> tuple[OperatorTime, ...]:
    return tuple(OperatorTime(row, taken, row.flops) for row, taken in zip(step.rows, ms, strict=True))
