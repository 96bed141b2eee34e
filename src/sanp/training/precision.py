"""The number format that trains fastest here: bf16 where the processor multiplies it natively, else float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.modules import device_of
from sanp.training import winograd


def resolve(precision: str, device: torch.device) -> Literal["fp32", "bf16"]:
    """What ``auto`` means on this device; bf16 that the processor would have to emulate is many times slower."""
    if precision not in ("auto", "fp32", "bf16"):
        raise SanpError(f"precision {precision!r} is not known: choose auto, fp32 or bf16")
    if precision != "auto":
        return precision  # type: ignore[return-value]
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    native = (
        device.type == "cpu" and torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    return "bf16" if native else "fp32"


def lay_out(net: nn.Module) -> bool:
    """Lays a network of images out channels-last, in which its convolutions are faster; says whether it could."""
    flat = all(parameter.dim() <= 4 for parameter in net.parameters())
    if flat:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return flat


class Format:
    """Runs a network in one precision, autocast for bf16, on channels-last maps, whose convolutions are faster.

    ``exact`` keeps to torch's own convolutions where training would take faster ones.
    """

    def __init__(self, net: nn.Module, precision: str, *, exact: bool = False) -> None:
        self.device = device_of(net)
        self.precision = resolve(precision, self.device)
        self._channels_last = lay_out(net)
        on_cpu = self._channels_last and self.device.type == "cpu"
        self._winograd = on_cpu and self.precision == "fp32" and not exact

    def place(self, x: Tensor) -> Tensor:
        """An input on the network's device, laid out as this format wants it."""
        x = x.to(self.device, non_blocking=True)
        return x.contiguous(memory_format=torch.channels_last) if self._channels_last and x.dim() == 4 else x

    def autocast(self) -> AbstractContextManager[object]:
        """The context to run a forward in."""
        if self.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return winograd.Winograd() if self._winograd and winograd.pays() else nullcontext()
