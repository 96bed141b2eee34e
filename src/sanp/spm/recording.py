"""What every SPM decided in one forward, given to whoever asks for it; nothing stays in the model afterwards."""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from sanp.core.checks import check_network
from sanp.core.errors import SanpError
from sanp.core.modules import unwrapped


@dataclass(frozen=True)
class Gates:
    """One layer's decisions in one forward."""

    saliency: Tensor
    """s (N, C_out), with its gradient"""
    decision: Tensor
    """b (N, C_out): the 0/1 decisions without training's noise, no gradient"""
    applied: Tensor
    """what the features were gated by in this forward: ``decision``, or in training its noisy and partly soft copy"""
    most: float | None = field(default=None, kw_only=True)
    """the largest saliency that features are multiplied by"""
    scales: bool = field(default=True, kw_only=True)
    """features are multiplied by the saliency; else by the gates alone"""
    soft: Tensor | None = field(default=None, kw_only=True)
    """in training by Improved Semantic Hashing, s1: what the gradient takes for the gates"""

    @property
    def scale(self) -> Tensor:
        """What multiplied the features (N, C_out).

        The saliency grows with the layer's input and multiplies its output: without a bound, what is large would be
        squared from layer to layer until it is not finite (docs/log.md).
        """
        if not self.scales:
            return self.applied
        bounded = self.saliency if self.most is None else self.saliency.clamp(max=self.most)
        if self.soft is None:
            return bounded * self.applied
        # PAPER 3.3: "the gradient always flows through s1", so it is that of s · s1. With a closed gate's 0 for s1 only
        # s · ds1/ds would be left, which is negative below 0: a useful channel would be closed further (docs/log.md).
        still = bounded.detach()
        return still * self.applied + self.soft * (bounded - still)


class Recording(dict[str, Gates]):
    """Layer name to :class:`Gates`, in the order of execution; a layer's second call in a forward is ``name:2``."""

    def note(self, name: str, gates: Gates) -> None:
        """Adds what a layer decided, under a name that no earlier call has taken."""
        self[call_name(name, self)] = gates


def call_name(layer: str, taken: Container[str]) -> str:
    """The name of a layer's next call in a forward, given the names of those before: ``layer``, ``layer:2``, ..."""
    name, call = layer, 1
    while name in taken:
        call += 1
        name = f"{layer}:{call}"
    return name


def decisions_of(gates: Mapping[str, Gates]) -> dict[str, Tensor]:
    """Layer name to b (N, C_out), as a cost model takes them."""
    return {name: each.decision for name, each in gates.items()}


def saliencies_of(gates: Mapping[str, Gates]) -> dict[str, Tensor]:
    """Layer name to s (N, C_out)."""
    return {name: each.saliency for name, each in gates.items()}


# The gates of the forward that is running now, and who wants a copy of them.
_running: ContextVar[Recording | None] = ContextVar("running", default=None)
_listeners: ContextVar[tuple[tuple[nn.Module, Recording], ...]] = ContextVar("listeners", default=())


# The gates of the forward whose gradients are being computed: activation checkpointing runs parts of it again. Not a
# context variable, since PyTorch may compute gradients in threads of its own.
_backward: list[Recording] = []


def note(name: str, gates: Gates) -> None:
    """Called by a gated layer: tells the running forward what was decided."""
    running = _running.get()
    if running is not None:
        running.note(name, gates)
    elif _backward and gates.saliency.requires_grad:
        first = _backward[-1].get(name)
        if first is not None and not first.saliency.requires_grad:
            raise SanpError(
                f"{name} first runs without gradients and again in the backward, as under reentrant activation "
                "checkpointing or in a reversible block, so its cost has none: give checkpoint use_reentrant=False, or "
                "leave the modules of the block dense (skip)"
            )


def running() -> Recording | None:
    """The gates decided so far in this forward; None outside the forward of a gated network."""
    return _running.get()


def decided() -> Recording | None:
    """As :func:`running`; while a checkpointed part of a forward runs again, the gates of that forward."""
    return _running.get() or (_backward[-1] if _backward else None)


def keep_for_backward(outputs: Iterable[Tensor]) -> None:
    """Called at the end of a forward: its gates are to be had again while gradients flow back from these outputs."""
    recording = _running.get()
    if recording is not None:
        for output in outputs:
            if output.requires_grad:
                output.register_hook(partial(_begin_backward, recording))


def _begin_backward(recording: Recording, gradient: Tensor) -> None:
    # Later forwards come first in a backward, so the last to begin is the one that is running.
    _backward[:] = [recording]
    torch.autograd.Variable._execution_engine.queue_callback(_backward.clear)


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


def record(network: nn.Module) -> AbstractContextManager[Recording]:
    """Collects the gates of the last forward of ``network`` inside the block: layer name to :class:`Gates`.

    A network wrapped for data-parallel training or compilation may be given as it is.
    """
    check_network(network)
    return _listening(unwrapped(network))


@contextmanager
def _listening(network: nn.Module) -> Iterator[Recording]:
    recording = Recording()
    token = _listeners.set((*_listeners.get(), (network, recording)))
    try:
        yield recording
    finally:
        _listeners.reset(token)
