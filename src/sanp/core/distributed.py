"""Several processes that train together, started by torchrun: their ranks, and what they send each other.

Without torchrun there is one process: its rank is 0, the world size is 1, and nothing is sent.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sanp.core.errors import SanpError

PATIENCE = timedelta(minutes=30)
"""how long a process waits for another before it gives up"""
_LOST = ("gloo", "connection", "peer", "timed out", "timeout", "socket", "store")
"""an error message with one of these words means a broken connection"""


_held: list[object] = []
"""process groups that this process has joined. Without this list a DistributedDataParallel wrapper may hold the last
reference to a group. When it is deleted, PyTorch waits for the group's threads while it holds the lock that they need,
and hangs."""


def hold_group() -> None:
    """Keeps a reference to the current process group until the process ends."""
    _held.append(dist.group.WORLD)


class RankLost(SanpError):
    """Another process of the run has ended or does not answer."""


def rank() -> int:
    """The number of this process, from 0. Process 0 writes files and prints."""
    return dist.get_rank() if _started() else 0


def world() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if _started() else 1


def _started() -> bool:
    return dist.is_available() and dist.is_initialized()


@contextmanager
def joined() -> Iterator[None]:
    """Inside, this process is in one group with the others that torchrun started.

    Does nothing if there is only one process, or if a process group exists already.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "MASTER_ADDR" not in os.environ or _started():
        yield
        return
    try:
        dist.init_process_group("gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise RankLost(f"cannot reach the other processes ({error}): check what torchrun was given") from error
    hold_group()
    with _Told():
        try:
            yield
        finally:
            dist.destroy_process_group()


class _Told:
    """Turns SIGTERM into an error with a message; torchrun sends it to all processes as soon as one has ended."""

    def __enter__(self) -> None:
        self._set(self._say)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error, SIGTERM is ignored, so that the process lives until it has printed that error.
        self._set(signal.SIG_DFL if kind is None else signal.SIG_IGN)

    @staticmethod
    def _set(handler: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)

    @staticmethod
    def _say(number: int, frame: FrameType | None) -> None:
        if sys.exc_info()[0] is None:  # otherwise another error is being handled already
            raise RankLost(
                "told to end (SIGTERM), as torchrun does when another process of the run ended: "
                "go on with sanp train --resume"
            )


@contextmanager
def lost_rank_explained(what_to_do: str) -> Iterator[None]:
    """Inside, an error of a broken connection becomes a :class:`RankLost` that ends with ``what_to_do``."""
    try:
        yield
    except RuntimeError as error:
        text = re.sub(r"\[/\S*\] ", "", " ".join(str(error).split()))  # removes the line of PyTorch's source
        if world() == 1 or not any(word in text.lower() for word in _LOST):
            raise
        raise RankLost(f"another process of this run ended or does not answer ({text[:80]}): {what_to_do}") from error


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of the tensors of all processes, the same on each process; gradients are summed likewise."""
    total: Tensor = _Sum.apply(tensor)  # type: ignore[no-untyped-call]
    return total


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, tensor: Tensor) -> Tensor:
        return _summed(tensor)

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return _summed(gradients[0])


def _summed(tensor: Tensor) -> Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    if world() > 1:
        dist.all_reduce(total)
    return total


def weighted_mean(values: list[float], weight: float) -> list[float]:
    """Weighted means over all processes, the same on each process.

    Every process passes the same number of ``values`` in the same order, and its own ``weight``. The weights of all
    processes add up to 1.
    """
    mine = torch.tensor(values, dtype=torch.float64) * weight
    return [float(value) for value in _summed(mine)]


def any_rank(flag: bool) -> bool:
    """Whether ``flag`` is true on any process."""
    return bool(_summed(torch.tensor(int(flag))) > 0)


def counts(own: int) -> list[int]:
    """The numbers ``own`` of all processes, by rank."""
    places = torch.zeros(world(), dtype=torch.int64)
    places[rank()] = own
    return [int(count) for count in _summed(places)]


def texts(own: str) -> list[str]:
    """The texts ``own`` of all processes, by rank."""
    written = own.encode()
    lengths = counts(len(written))
    table = torch.zeros(world(), max(lengths), dtype=torch.int64)
    table[rank(), : len(written)] = torch.tensor(list(written), dtype=torch.int64)
    rows = zip(_summed(table), lengths, strict=True)
    return [bytes(row[:length].tolist()).decode() for row, length in rows]


def barrier() -> None:
    """Waits until every process has called this."""
    if world() > 1:
        dist.barrier()


@contextmanager
def first_on_its_machine_first() -> Iterator[None]:
    """Inside, one process of each machine runs first and the others wait, so that they find what it downloaded."""
    later = world() > 1 and os.environ.get("LOCAL_RANK", "0") != "0"
    if later:
        barrier()
    try:
        yield
    finally:
        if not later:
            barrier()


def by_first(work: Callable[[], None]) -> None:
    """Calls ``work`` on process 0 while the others wait; if it raises a SanpError, all processes raise it."""
    if world() == 1:
        work()
        return
    failed = ""
    if rank() == 0:
        try:
            work()
        except SanpError as error:
            failed = str(error)
    if told := texts(failed)[0]:
        raise SanpError(told)


@torch.no_grad()
def same_everywhere(net: nn.Module) -> None:
    """Copies the network's tensors from process 0 to all others, since rounding may differ between machines."""
    if world() > 1:
        for tensor in net.state_dict(keep_vars=True).values():
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.copy_(whole)
