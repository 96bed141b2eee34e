"""A Saliency-and-Pruning Module as arrays: its standardisation is folded into the first matrix."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.shapes import Floats
from sanp.engine.lowering.unsupported import Unsupported
from sanp.spm.module import SPM


@dataclass(frozen=True, kw_only=True)
class GateWeights:
    """A gate: saliency s = W2 relu(W1 d + b1) + b2 of the descriptor d, and a channel is open where s > threshold."""

    w1: Floats
    """(hidden, C_in); no rows for a constant saliency"""
    b1: Floats
    """(hidden,)"""
    w2: Floats
    """(C_out, hidden)"""
    b2: Floats
    """(C_out,)"""
    threshold: Floats
    """(C_out,)"""
    group: int = 1
    """neighbouring channels that are decided together, by the mean of s - threshold"""
    top: int = 0
    """if positive, so many groups with the largest s - threshold are open, and no others"""
    scales: bool = True
    """open channels are multiplied by their saliency"""
    absolute: bool = False
    """d is the mean of |x| instead of x over the map"""
    most: float = math.inf
    """open channels are multiplied by no more than this"""


def floats(tensor: Tensor) -> Floats:
    """A tensor as an array of float32."""
    array: Floats = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
    return array


def gate_weights(spm: SPM) -> GateWeights:
    """The arrays of a gate that decides as ``spm`` does in evaluation."""
    if type(spm) is not SPM:
        raise Unsupported(f"the gate {type(spm).__name__}")
    saliency, binarize = spm.saliency.folded(), spm.binarize
    if saliency is None:
        raise Unsupported(f"the saliency {type(spm.saliency).__name__}")
    if binarize.obstacle is not None:
        raise Unsupported(binarize.obstacle)
    channels = len(saliency.b2)
    return GateWeights(
        w1=floats(saliency.w1),
        b1=floats(saliency.b1),
        w2=floats(saliency.w2),
        b2=floats(saliency.b2),
        threshold=np.broadcast_to(floats(spm.threshold + binarize.edge), (channels,)),
        scales=spm.scales,
        group=spm.group,
        top=binarize.fixed_count or 0,
        absolute=saliency.absolute,
        most=math.inf if spm.most is None else spm.most,
    )
