"""Times calls in turns, with this process on cores of its own."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from sanp.core.errors import SanpError
from sanp.engine.bench.runtimes import Call

ShowShare = Callable[[float], None]
"""shows how much of a timing is done, a share from 0 to 1"""


@contextlib.contextmanager
def pinned(threads: int, core: int | None) -> Iterator[None]:
    """This process on as many cores as threads, or on one thread on ``core``, and torch with as many threads."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if core is not None and core not in allowed:
        raise SanpError(f"core {core} is not among {sorted(allowed)}: choose one of them")
    if core is not None and threads == 1:
        chosen = {core}
    else:
        chosen = set(sorted(allowed)[-threads:])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if chosen:
            os.sched_setaffinity(0, chosen)
        yield
    finally:
        torch.set_num_threads(before)
        if chosen:
            os.sched_setaffinity(0, allowed)


def durations(
    calls: Mapping[str, Call],
    seconds: float,
    clock: Callable[[], float],
    *,
    warm: int = 1,
    burst: int = 3,
    progress: ShowShare = lambda share: None,
) -> dict[str, list[float]]:
    """The times of each call, taken in turns until ``seconds`` have passed.

    In each turn a call runs ``warm`` times untimed, to fill the caches, and then ``burst`` times by ``clock``.
    ``progress`` is called between turns with the share of the seconds that have passed.
    """
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0 or min(map(len, times.values())) < 5:
        progress(1 - max(0.0, left) / seconds if seconds else 1.0)
        for name, call in calls.items():
            for _ in range(warm):
                call()
            for _ in range(burst):
                start = clock()
                call()
                times[name].append(clock() - start)
    return times
