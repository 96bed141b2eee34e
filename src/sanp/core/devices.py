"""Devices: which one to use, and number formats that must not change on any of them."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError

DEVICES = ("auto", "cpu", "cuda", "mps")
CPU = torch.device("cpu")
WITHOUT_DOUBLE = {"mps"}
"""kinds of devices that have no float64"""


def chosen_device(name: str) -> torch.device:
    """The device of this name; ``auto`` is CUDA if there is one, else MPS if there is one, else the CPU."""
    if name not in DEVICES:
        raise SanpError(f"unknown device {name!r}: choose one of {', '.join(DEVICES)}")
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


def in_double(x: Tensor) -> Tensor:
    """The tensor in double precision: on its device, or on the CPU if that device has none."""
    return (x.cpu() if x.device.type in WITHOUT_DOUBLE else x).double()


def finish_work(device: torch.device) -> None:
    """Waits until a device has done what was asked of it, so that a time is that of the work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def exact_on(x: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast changes no number format on the device of ``x``."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()
