"""Records what every SPM decided in one forward; nothing of it stays in the network afterwards."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from weakref import WeakKeyDictionary, WeakMethod

import torch
from torch import Tensor, nn

from sanp.core.checks import check_is_network
from sanp.core.devices import in_double
from sanp.core.errors import SanpError
from sanp.core.modules import unwrapped


@dataclass(frozen=True)
class Gates:
    """Saliencies and decisions of one layer in one forward."""

    saliency: Tensor
    """s (N, C_out), with its gradient"""
    decision: Tensor
    """b (N, C_out): the 0/1 decisions without the noise of training, no gradient"""
    applied: Tensor
    """the gates (N, C_out) that this forward used: ``decision``, or in training a noisy and partly soft form of it"""
    most: float | None = field(default=None, kw_only=True)
    """upper bound of the saliency that multiplies the features; None: no bound"""
    scales: bool = field(default=True, kw_only=True)
    """the features are multiplied by saliency and gates; otherwise by the gates alone"""
    soft: Tensor | None = field(default=None, kw_only=True)
    """s1 (N, C_out) with the noise of this step, which takes the place of the gates in the gradient; None: the gates
    themselves have it"""
    drawn: Tensor | None = field(default=None, kw_only=True)
    """in training, the 0/1 decisions with the noise of this step (N, C_out), no gradient"""

    @property
    def scale(self) -> Tensor:
        """The factor of each channel's features (N, C_out).

        The saliency grows with the layer's input and multiplies its output. Without the bound ``most``, large values
        would be squared from layer to layer until they overflow (docs/log.md).
        """
        if not self.scales:
            return self.applied
        bounded = self.saliency if self.most is None else self.saliency.clamp(max=self.most)
        if self.soft is None:
            return bounded * self.applied
        # PAPER 3.3: "gradients always flow to s1" says nothing of the other factor. Here it is the gradient of s · s1.
        # With the 0 of a closed gate in place of s1, only s · ds1/ds would be left of it. That is negative for s < 0,
        # and would close a useful channel further (docs/log.md).
        still = bounded.detach()
        return still * self.applied + self.soft * (bounded - still)

    def deciding(self, decision: Tensor) -> "Gates":
        """The same saliencies with another ``decision`` (N, C_out), which is applied as it is."""
        return replace(self, decision=decision, applied=decision)


Limit = Callable[[str, Mapping[str, Gates], Tensor], Tensor | None]
"""Says how many channels of each sample (N,) a layer may open, or None for all that it would open; given are the
layer's name, the gates that were decided before it, and the numbers of channels that it would open (N,)."""


class Recording(dict[str, Gates]):
    """Layer name to :class:`Gates`, in the order of execution; the second call of a layer has the name ``name:2``."""

    limit: Limit | None = None
    """what bounds the open channels of the forward"""

    def note(self, name: str, gates: Gates) -> None:
        """Adds the gates of the layer ``name``, as ``name:2`` and so on if the layer was called before."""
        self[call_name(name, self)] = gates


def call_name(layer: str, taken: Container[str]) -> str:
    """The name of a layer's next call in a forward, given the names of those before: ``layer``, ``layer:2``, ..."""
    name, call = layer, 1
    while name in taken:
        call += 1
        name = f"{layer}:{call}"
    return name


def decisions_of(gates: Mapping[str, Gates]) -> dict[str, Tensor]:
    """The decisions b (N, C_out) of each layer, by name, as a cost model takes them."""
    return {name: each.decision for name, each in gates.items()}


def exact_decisions_of(gates: Mapping[str, Gates]) -> dict[str, Tensor]:
    """The same in double precision, so that a cost model counts every FLOP exactly."""
    return {name: in_double(each.decision) for name, each in gates.items()}


def drawn_of(gates: Mapping[str, Gates]) -> dict[str, Tensor]:
    """The 0/1 decisions (N, C_out) of each layer as training drew them, with noise; without it where there is none."""
    return {name: each.decision if each.drawn is None else each.drawn for name, each in gates.items()}


def applied_of(gates: Mapping[str, Gates]) -> dict[str, Tensor]:
    """The gates (N, C_out) that the forward used, by layer name."""
    return {name: each.applied for name, each in gates.items()}


def saliencies_of(gates: Mapping[str, Gates]) -> dict[str, Tensor]:
    """The saliencies s (N, C_out) of each layer, by name."""
    return {name: each.saliency for name, each in gates.items()}


# The gates of the forward that is running, and the networks whose gates are being recorded, each with its recording.
_running: ContextVar[Recording | None] = ContextVar("running", default=None)
_listeners: ContextVar[tuple[tuple[nn.Module, Recording], ...]] = ContextVar("listeners", default=())


# By network, what wants to know of its forwards in training; held weakly, so that neither keeps the other alive.
_watchers: WeakKeyDictionary[nn.Module, WeakMethod[Callable[[], None]]] = WeakKeyDictionary()


# The gates of the forward whose gradients are being computed, since activation checkpointing runs parts of that forward
# again. This is not a context variable, because PyTorch may compute gradients in other threads.
_backward: list[Recording] = []


def note(name: str, gates: Gates) -> None:
    """Adds the gates of the layer ``name`` to the running forward; every gated layer calls this."""
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


def allowed(name: str, gates: Gates) -> Tensor | None:
    """How many channels of each sample (N,) the next call of the layer ``name`` may open; None: all of ``gates``."""
    running = _running.get()
    if running is None or running.limit is None:
        return None
    return running.limit(call_name(name, running), running, gates.decision.sum(1))


def running() -> Recording | None:
    """The gates so far in the running forward; None outside the forward of a gated network."""
    return _running.get()


def decided() -> Recording | None:
    """As :func:`running`, but while a checkpointed part of a forward runs again, the gates of that forward."""
    return _running.get() or (_backward[-1] if _backward else None)


def keep_for_backward(outputs: Iterable[Tensor]) -> None:
    """Makes the gates of the running forward available again while gradients flow back from ``outputs``.

    Called at the end of a forward with its output tensors.
    """
    recording = _running.get()
    if recording is not None:
        for output in outputs:
            if output.requires_grad:
                output.register_hook(partial(_begin_backward, recording))


def _begin_backward(recording: Recording, gradient: Tensor) -> None:
    # A backward goes through the forwards from the last to the first, so the one that began last is the one in work.
    _backward[:] = [recording]
    torch.autograd.Variable._execution_engine.queue_callback(_backward.clear)


@contextmanager
def forward_of(network: nn.Module, limit: Limit | None = None) -> Iterator[None]:
    """Wraps one forward of ``network``: collects its gates, and gives them to :func:`record` when it is over.

    ``limit`` bounds the channels that its gates open.
    """
    recording = Recording()
    recording.limit = limit
    token = _running.set(recording)
    try:
        yield
    finally:
        _running.reset(token)
    for listened, wanted in _listeners.get():
        if listened is network:
            wanted.clear()
            wanted.update(recording)
    # While gradients are computed, a forward is one that activation checkpointing runs again.
    if network.training and torch.is_grad_enabled() and not torch.compiler.is_compiling() and not _backward:
        told = _watchers[network]() if network in _watchers else None
        if told is not None:
            told()


def watch_training(network: nn.Module, told: Callable[[], None]) -> None:
    """Calls the method ``told`` after each forward of ``network`` in training mode with gradients, while its object
    lives; it takes the place of an earlier one."""
    _watchers[network] = WeakMethod(told)


def record(network: nn.Module) -> AbstractContextManager[Recording]:
    """Records the gates of the last forward of ``network`` inside the ``with`` block: layer name to :class:`Gates`.

    ``network`` may be wrapped for data-parallel training or by ``torch.compile``.
    """
    check_is_network(network)
    return _listening(unwrapped(network))


@contextmanager
def _listening(network: nn.Module) -> Iterator[Recording]:
    recording = Recording()
    token = _listeners.set((*_listeners.get(), (network, recording)))
    try:
        yield recording
    finally:
        _listeners.reset(token)
