"""Devices: which one to use, and number formats that must not change on any of them."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError, unknown_name

DEVICES = ("auto", "cpu", "cuda", "mps")


def chosen_device(name: str) -> torch.device:
    """The device of this name; ``auto`` is CUDA if there is one, else MPS if there is one, else the CPU."""
    if name not in DEVICES:
        raise unknown_name("device", name, DEVICES)
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(each for each, is_there in there.items() if is_there)
    if not there[name]:
        raise SanpError(f"device {name} is not here, or torch {torch.__version__} cannot use it: give auto or cpu")
    return torch.device(name)


def moved(net: nn.Module | None, name: str) -> None:
    """Moves a network, in place, to the device of this name; None stays None."""
    if net is not None:
        net.to(chosen_device(name))


def exact_on(x: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast changes no number format on the device of ``x``."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()
