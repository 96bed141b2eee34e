"""Several processes that train together, as torchrun starts them: who is who, and what they tell each other.

Without such a start there is one process: its rank is 0 of 1 and nothing is sent.
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
"""how long a process waits for another before it takes that one for lost"""
_LOST = ("gloo", "connection", "peer", "timed out", "timeout", "socket", "store")
"""words of which the errors of a broken connection have at least one"""


_held: list[object] = []
"""groups that were joined: if a wrapper of DistributedDataParallel is the last to let one go, PyTorch waits for the
group's threads while it holds the lock that they need, and never ends"""


def hold_group() -> None:
    """Keeps the group that was just joined for as long as the process lives."""
    _held.append(dist.group.WORLD)


class RankLost(SanpError):
    """Another process of the run ended or does not answer."""


def rank() -> int:
    """The number of this process; 0 writes, evaluates and prints."""
    return dist.get_rank() if _started() else 0


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _started() else 1


def _started() -> bool:
    return dist.is_available() and dist.is_initialized()


@contextmanager
def joined() -> Iterator[None]:
    """Joins the processes that torchrun started; alone, or where a group is there already, does nothing."""
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
    """SIGTERM, which torchrun sends to the others as soon as one process ended: words instead of a silent end."""

    def __enter__(self) -> None:
        self._set(self._say)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._set(signal.SIG_DFL if kind is None else signal.SIG_IGN)  # on its way out, with something to say

    @staticmethod
    def _set(handler: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)

    @staticmethod
    def _say(number: int, frame: FrameType | None) -> None:
        if sys.exc_info()[0] is None:  # else another error is on its way already
            raise RankLost(
                "told to end (SIGTERM), as torchrun does when another process of the run ended: "
                "go on with sanp train --resume"
            )


@contextmanager
def explained(what_to_do: str) -> Iterator[None]:
    """A broken connection inside is an error that says what to do."""
    try:
        yield
    except RuntimeError as error:
        text = re.sub(r"\[/\S*\] ", "", " ".join(str(error).split()))  # without the place in PyTorch's source
        if world() == 1 or not any(word in text.lower() for word in _LOST):
            raise
        raise RankLost(f"another process of this run ended or does not answer ({text[:80]}): {what_to_do}") from error


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of the processes' tensors, on each; its gradient is the sum of theirs."""
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
    """Means over the processes of what each gives with its weight; the weights sum to 1."""
    mine = torch.tensor(values, dtype=torch.float64) * weight
    return [float(value) for value in _summed(mine)]


def any_rank(flag: bool) -> bool:
    """Whether it is true of any process."""
    return bool(_summed(torch.tensor(int(flag))) > 0)


def counts(own: int) -> list[int]:
    """Every process's number, in their order."""
    places = torch.zeros(world(), dtype=torch.int64)
    places[rank()] = own
    return [int(count) for count in _summed(places)]


def texts(own: str) -> list[str]:
    """Every process's text, in their order."""
    written = own.encode()
    lengths = counts(len(written))
    table = torch.zeros(world(), max(lengths), dtype=torch.int64)
    table[rank(), : len(written)] = torch.tensor(list(written), dtype=torch.int64)
    rows = zip(_summed(table), lengths, strict=True)
    return [bytes(row[:length].tolist()).decode() for row, length in rows]


def barrier() -> None:
    """Waits for the others."""
    if world() > 1:
        dist.barrier()


@contextmanager
def first_on_its_machine_first() -> Iterator[None]:
    """Inside, one process of every machine goes before the others, so that they find what it fetched."""
    later = world() > 1 and os.environ.get("LOCAL_RANK", "0") != "0"
    if later:
        barrier()
    try:
        yield
    finally:
        if not later:
            barrier()


def by_first(work: Callable[[], None]) -> None:
    """Lets the first process do something while the others wait; an error it meets there is raised on all."""
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
    """Gives every process the network of the first: rounding may differ between machines."""
    if world() > 1:
        for tensor in net.state_dict(keep_vars=True).values():
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.copy_(whole)
