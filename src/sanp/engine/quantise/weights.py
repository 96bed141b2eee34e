"""Weights as whole numbers from -127 to 127, with one scale for each output channel."""

import numpy as np

from sanp.engine.lowering.shapes import Floats

LARGEST = 127


def whole_weights(weight: Floats) -> tuple[Floats, Floats]:
    """The whole numbers, as floats in the shape of ``weight`` (C_out, ...), and the scales (C_out,)."""
    flat = weight.reshape(len(weight), -1)
    largest = np.abs(flat).max(1)
    scale = (np.where(largest > 0, largest, 1) / LARGEST).astype(np.float32)
    whole = np.clip(np.rint(flat / scale[:, None]), -LARGEST, LARGEST).astype(np.float32)
    return whole.reshape(weight.shape), scale
