"""The paper's FLOPs formula (4.1.1): HW (C_in k² + 1) C_out multiply-adds, the 1 for the bias; convolutions only."""

from typing import TypeVar

from torch import Tensor

Count = TypeVar("Count", int, float, Tensor)


def conv_flops(positions: int, inputs: Count, taps: int, outputs: Count) -> Count:
    """FLOPs of a convolution with so many output positions, (live) inputs, kernel taps and (live) outputs.

    The counts may be numbers or tensors of one count per sample: the formula is the same.
    """
    return positions * (inputs * taps + 1) * outputs


def predictor_flops(positions: int, inputs: int, layers: int) -> int:
    """FLOPs that an SPM adds: one addition per input element for the mean, and its two layers."""
    return positions * inputs + layers


def human(count: float) -> str:
    """A count as people write it: 174.5M, 1.82G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return f"{count:.0f}"
