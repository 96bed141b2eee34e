"""The operators, activations and algorithms of a native program, numbered as in native/names.hpp."""

from enum import IntEnum


class OperatorKind(IntEnum):
    """What an operator of a program does."""

    INPUT = 1
    OUTPUT = 2
    CONV = 3
    GATE = 4
    LINEAR = 5
    POOL = 6
    ADAPTIVE = 7
    ACTIVATION = 8
    ADD = 9
    MULTIPLY = 10
    AFFINE = 11
    CONCAT = 12
    CHANNELS = 13
    FLATTEN = 14
    LAYER_NORM = 15
    QUANTISE = 16
    DEQUANTISE = 17
    BYTE_CONV = 18
    BYTE_MEAN = 19
    BYTE_POOL = 20
    GATHER = 21
    INSTANCE_NORM = 22
    SOFTMAX = 23
    RESIZE = 24
    UNPOOL = 25
    POWER = 26
    BYTE_AVERAGE = 27
    BYTE_COMBINE = 28


ACTIVATIONS = (
    "none", "relu", "clip", "leaky", "silu", "gelu", "gelu_tanh", "hardswish", "hardsigmoid", "sigmoid", "tanh",
    "prelu", "elu", "mish",
)  # fmt: skip
"""functions of every element, numbered from 0"""

ALGORITHMS = (
    "direct", "winograd 2x2", "winograd 4x4", "winograd stride 2", "winograd by lanes", "winograd 7x7 stride 2",
)  # fmt: skip
"""ways to compute a convolution, numbered from 0"""
