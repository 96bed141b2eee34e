"""The FLOPs formula of the paper (4.1.1): HW (C_in k² + 1) C_out multiply-adds, where the 1 is the bias."""

from typing import TypeVar

from torch import Tensor

_Count = TypeVar("_Count", int, float, Tensor)


def conv_flops(positions: int, inputs: _Count, taps: int, outputs: _Count) -> _Count:
    """FLOPs of a convolution.

    ``positions`` is HW, ``taps`` is k². ``inputs`` and ``outputs`` are the numbers of channels, or of live channels;
    they may be tensors with a number for each sample.
    """
    return positions * (inputs * taps + 1) * outputs


def predictor_flops(positions: int, inputs: int, layers: int) -> int:
    """FLOPs that an SPM adds: an addition for each input element, for the mean, and its two layers.

    ``positions`` is HW of the layer's input, ``inputs`` its number of channels, ``layers`` the multiply-adds of the
    SPM's two layers.
    """
    return positions * inputs + layers


def human(count: float) -> str:
    """A count with a unit, as people write it: 174.5M, 1.82G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return f"{count:.0f}"
