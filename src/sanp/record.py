"""What every SPM decided in one forward, given to whoever asks for it; nothing stays in the model afterwards."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Gates:
    """One layer's decisions in one forward."""

    saliency: Tensor
    """s (N, C_out), with its gradient"""
    decision: Tensor
    """b (N, C_out): the 0/1 decisions without training's noise, no gradient"""
    applied: Tensor
    """what multiplied the features in this forward: ``decision``, or in training its noisy and partly soft copy"""


class Recording(dict[str, Gates]):
    """Layer name to :class:`Gates`, in the order of execution; a layer's second call in a forward is ``name:2``."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, tuple[Tensor, Tensor]] = {}
        """identity of features that a batch norm outside their layer still has to see, to them and their scale"""

    def note(self, name: str, gates: Gates) -> None:
        """Adds what a layer decided, under a name that no earlier call has taken."""
        key, call = name, 1
        while key in self:
            call += 1
            key = f"{name}:{call}"
        self[key] = gates


# The gates of the forward that is running now, and who wants a copy of them.
_running: ContextVar[Recording | None] = ContextVar("running", default=None)
_listeners: ContextVar[tuple[tuple[nn.Module, Recording], ...]] = ContextVar("listeners", default=())


def note(name: str, gates: Gates) -> None:
    """Called by a gated layer: tells the running forward what was decided."""
    running = _running.get()
    if running is not None:
        running.note(name, gates)


def running() -> Recording | None:
    """The gates decided so far in this forward; None outside the forward of a gated network."""
    return _running.get()


@contextmanager
def forward_of(network: nn.Module) -> Iterator[None]:
    """Wraps one forward of ``network``; the listeners get its gates when it is over."""
    recording = Recording()
    token = _running.set(recording)
    try:
        yield
    finally:
        _running.reset(token)
    for listened, wanted in _listeners.get():
        if listened is network:
            wanted.clear()
            wanted.update(recording)


def unwrapped(network: nn.Module) -> nn.Module:
    """What a wrapper for data-parallel training or compilation wraps; anything else as it is."""
    while True:
        if isinstance(network, nn.parallel.DistributedDataParallel | nn.DataParallel):
            network = network.module
        elif isinstance(inner := getattr(network, "_orig_mod", None), nn.Module):
            network = inner
        else:
            return network


@contextmanager
def record(network: nn.Module) -> Iterator[Mapping[str, Gates]]:
    """Collects the gates of the last forward of ``network`` inside the block: layer name to :class:`Gates`.

    A network wrapped for data-parallel training or compilation may be given as it is.
    """
    inner = unwrapped(network)
    recording = Recording()
    token = _listeners.set((*_listeners.get(), (inner, recording)))
    try:
        yield recording
    finally:
        _listeners.reset(token)
