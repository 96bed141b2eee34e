"""Does work in parallel: in processes on this machine, or on Ray if that is installed.

Ray (the extra ``ray``) uses the cluster that RAY_ADDRESS names, or starts one on this machine. The machines of a
cluster must share the folder that the work is done in.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from sanp.core.checks import is_installed

Item = TypeVar("Item")
Ended = tuple[Item, BaseException | None]
"""An item whose work has ended, and the error if it failed."""


def side_by_side(work: Callable[[Item], object], items: Sequence[Item], workers: int) -> Iterator[Ended[Item]]:
    """Calls ``work`` with each item, ``workers`` of them at a time; yields the items as they end, in any order."""
    return (_on_ray if is_installed("ray") else _in_processes)(work, items, workers)


def _in_processes(work: Callable[[Item], object], items: Sequence[Item], workers: int) -> Iterator[Ended[Item]]:
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(work, item): item for item in items}
        for done in as_completed(running):
            yield running[done], done.exception()


def _on_ray(work: Callable[[Item], object], items: Sequence[Item], workers: int) -> Iterator[Ended[Item]]:
    import ray

    own = not ray.is_initialized()
    if own:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        # A crash is reported and not tried again; only the number of workers limits how many run at a time.
        task = ray.remote(num_cpus=0, max_retries=0)(work)
        left = list(reversed(items))
        running: dict[object, Item] = {}
        while left or running:
            while left and len(running) < workers:
                item = left.pop()
                running[task.remote(item)] = item
            (done,), _ = ray.wait(list(running))
            yield running.pop(done), _error(done)
    finally:
        if own:
            ray.shutdown()


def _error(done: object) -> BaseException | None:
    import ray

    error: BaseException | None = None
    try:
        ray.get(done)
    except ray.exceptions.RayError as raised:
        error = getattr(raised, "cause", None) or raised
    return error
