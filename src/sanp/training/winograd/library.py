"""Loads the native library beside this file, and calls its C functions on channels-last maps of float32 or bf16."""

import ctypes
import functools
from collections.abc import Callable
from ctypes import c_int, c_long, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from sanp.core.errors import SanpError
from sanp.core.native import load_library


@functools.cache
def _load() -> ctypes.CDLL | None:
    """The library; None if the package was installed without a compiler."""
    for path in sorted(Path(__file__).parent.glob("_training*.so")):
        try:
            library = load_library(path)
        except OSError:
            return None
        library.sanp_winograd_convolve.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_int]
        library.sanp_winograd_kernel_gradient.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p, c_int]
        for name in ("sanp_winograd_bf16", "sanp_winograd_fp32_wide"):
            getattr(library, f"{name}_convolve").argtypes = [c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_int]
            getattr(library, f"{name}_kernel_gradient").argtypes = [c_void_p, c_void_p, c_void_p, c_void_p, c_int]
        return library
    return None


def usable(dtype: torch.dtype) -> bool:
    """Whether the library exists and the processor has the instructions that it was compiled for."""
    library = _load()
    if library is None:
        return False
    return bool(library.sanp_winograd_bf16_usable() if dtype == torch.bfloat16 else library.sanp_winograd_usable())


@functools.cache
def has_wide(dtype: torch.dtype) -> bool:
    """Whether maps of this format are computed with AVX-512, which has schemes for smaller maps too."""
    library = _load()
    if library is None:
        return False
    return dtype == torch.bfloat16 or bool(library.sanp_winograd_fp32_wide_usable())


def convolve(x: Tensor, weight: Tensor, padding: int, *, turned: bool = False) -> Tensor:
    """The convolution of ``x`` with the 3x3 float32 kernels ``weight``, stride 1, in the format of ``x``.

    ``turned`` rotates the kernels by 180 degrees and exchanges their input and output channels.
    """
    samples, _, height, width = x.shape
    out = weight.shape[1 if turned else 0]
    size = (samples, out, height + 2 * padding - 2, width + 2 * padding - 2)
    y = torch.empty(size, dtype=x.dtype, memory_format=torch.channels_last)
    shape, threads = _shape(x, y, padding), torch.get_num_threads()
    if has_wide(x.dtype):
        weight = weight.contiguous(memory_format=torch.channels_last)
        status = _wide(x.dtype, "convolve")(shape, x.data_ptr(), weight.data_ptr(), int(turned), y.data_ptr(), threads)
    else:
        strides = weight.stride()
        if turned:
            strides = (strides[1], strides[0], *strides[2:])
        status = _native().sanp_winograd_convolve(
            shape, x.data_ptr(), weight.data_ptr(), (c_long * 4)(*strides), int(turned), y.data_ptr(), threads
        )
    _check(status)
    return y


def kernel_gradient(x: Tensor, gradient: Tensor, padding: int) -> Tensor:
    """The gradient of the kernels (out, in, 3, 3) in float32.

    ``x`` is the input of the convolution, ``gradient`` the gradient of its output, ``padding`` its padding.
    """
    wide = has_wide(x.dtype)
    layout = torch.channels_last if wide else torch.contiguous_format
    found = torch.empty((gradient.shape[1], x.shape[1], 3, 3), memory_format=layout)
    call = _wide(x.dtype, "kernel_gradient") if wide else _native().sanp_winograd_kernel_gradient
    shape, threads = _shape(x, gradient, padding), torch.get_num_threads()
    _check(call(shape, x.data_ptr(), gradient.data_ptr(), found.data_ptr(), threads))
    return found


def _wide(dtype: torch.dtype, what: str) -> Callable[..., int]:
    """The function for AVX-512 of this format."""
    name = "bf16" if dtype == torch.bfloat16 else "fp32_wide"
    function: Callable[..., int] = getattr(_native(), f"sanp_winograd_{name}_{what}")
    return function


def _native() -> ctypes.CDLL:
    library = _load()
    if library is None:
        raise SanpError("the native part of sanp.winograd is missing: install sanp again where there is a C++ compiler")
    return library


def _shape(x: Tensor, y: Tensor, padding: int) -> "ctypes.Array[c_int]":
    samples, channels, height, width = x.shape
    return (c_int * 8)(samples, height, width, channels, y.shape[2], y.shape[3], y.shape[1], padding)


def _check(status: int) -> None:
    if status != 0:
        raise SanpError("no memory left for a convolution: give a smaller batch")
