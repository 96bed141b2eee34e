"""The number format of training: bf16 if the processor has instructions for it, else float32."""

import platform
from contextlib import AbstractContextManager, ExitStack
from typing import Literal

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.modules import device_of
from sanp.training import winograd
from sanp.training.dropout import FastDropout

X86 = platform.machine().lower() in ("x86_64", "amd64")


def resolve(precision: str, device: torch.device) -> Literal["fp32", "bf16"]:
    """The format to use on this device: as given, or for ``auto`` the faster one.

    bf16 is many times slower on a processor that has to emulate it.
    """
    if precision not in ("auto", "fp32", "bf16"):
        raise SanpError(f"precision {precision!r} is not known: choose auto, fp32 or bf16")
    if precision != "auto":
        return precision  # type: ignore[return-value]
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if device.type == "cpu" and _has_bf16() else "fp32"


def _has_bf16() -> bool:
    """Whether this processor has instructions for bf16.

    On x86 oneDNN calls bf16 supported wherever there is AVX-512, and emulates it at a tenth of float32's speed.
    """
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # older releases of torch lack them: float32 then
    return not X86 or any(getattr(torch.cpu, name, lambda: False)() for name in names)


def lay_out(net: nn.Module) -> bool:
    """Lays the parameters of a network out channels-last, which makes two-dimensional convolutions faster.

    Returns whether it was done: not if a parameter has more than four dimensions, as those of 3D convolutions have.
    """
    flat = all(parameter.dim() <= 4 for parameter in net.parameters())
    if flat:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return flat


class Format:
    """The precision and memory layout in which a network runs: fp32, or bf16 by autocast; channels-last if possible.

    ``net`` is laid out in place. ``precision`` is auto, fp32 or bf16. ``exact`` uses torch's own convolutions even
    where faster ones with other rounding exist.
    """

    def __init__(self, net: nn.Module, precision: str, *, exact: bool = False) -> None:
        self.device = device_of(net)
        self.precision = resolve(precision, self.device)
        self._channels_last = lay_out(net)
        self._winograd = self._channels_last and self.device.type == "cpu" and not exact
        drops = any(isinstance(module, nn.Dropout) for module in net.modules())
        self._fast_dropout = drops and self.device.type == "cpu"

    def place(self, x: Tensor) -> Tensor:
        """The input on the network's device and in the memory layout of this format."""
        x = x.to(self.device, non_blocking=True)
        return x.contiguous(memory_format=torch.channels_last) if self._channels_last and x.dim() == 4 else x

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which to run a forward."""
        contexts = ExitStack()
        if self.precision == "bf16":
            contexts.enter_context(torch.autocast(self.device.type, torch.bfloat16))
        if self._winograd and winograd.pays(self.precision):
            contexts.enter_context(winograd.Winograd())
        if self._fast_dropout:
            contexts.enter_context(FastDropout())
        return contexts
