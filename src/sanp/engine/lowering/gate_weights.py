"""A Saliency-and-Pruning Module as arrays: its standardisation is folded into the first matrix."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sanp.engine.lowering.shapes import Floats
from sanp.engine.lowering.unsupported import Unsupported
from sanp.methods.fbs import BoostingSaliency
from sanp.methods.parts.density import Winners
from sanp.spm.binarize import SemanticHashing, TopK
from sanp.spm.module import SPM
from sanp.spm.saliency import PredictedSaliency, Standardize, StaticSaliency


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
    channels, w1, b1, w2, b2 = _saliency(spm.saliency)
    groups = channels // spm.group
    if isinstance(spm.binarize, SemanticHashing):
        top = 0
    elif isinstance(spm.binarize, Winners):
        top = int(spm.binarize.kept)
    elif isinstance(spm.binarize, TopK):
        top = max(1, round(spm.binarize.density * groups))
    else:
        raise Unsupported(f"the binarizer {type(spm.binarize).__name__}")
    threshold = np.broadcast_to(floats(spm.threshold), (channels,))
    return GateWeights(
        w1=w1,
        b1=b1,
        w2=w2,
        b2=b2,
        threshold=threshold,
        scales=spm.scales,
        group=spm.group,
        top=top,
        absolute=isinstance(spm.saliency, BoostingSaliency),
        most=math.inf if spm.most is None else spm.most,
    )


def _saliency(module: nn.Module) -> tuple[int, Floats, Floats, Floats, Floats]:
    """C_out, and W1, b1, W2 and b2 with everything folded in."""
    if isinstance(module, StaticSaliency):
        with torch.no_grad():
            constant = floats(module.predict(module.vector)[0])
        nothing = np.zeros((0, module.vector.shape[1]), np.float32)
        return len(constant), nothing, nothing[:, 0], np.zeros((len(constant), 0), np.float32), constant
    if isinstance(module, BoostingSaliency):
        channels = module.phi.out_features
        one = np.eye(channels, dtype=np.float32)
        return channels, floats(module.phi.weight), floats(module.phi.bias), one, np.zeros(channels, np.float32)
    if not isinstance(module, PredictedSaliency):
        raise Unsupported(f"the saliency {type(module).__name__}")
    w1, b1 = module.w1.weight.detach().double(), torch.zeros(module.w1.out_features, dtype=torch.float64)
    if isinstance(module.standardize, Standardize):
        scale = (module.standardize.var.double() + module.standardize.eps).rsqrt()
        w1 = w1 * scale
        b1 = w1 @ (module.standardize.centre / scale - module.standardize.mean.double())
    elif not isinstance(module.standardize, nn.Identity):
        raise Unsupported(f"the standardisation {type(module.standardize).__name__}")
    w2 = module.w2
    b2 = torch.zeros(w2.out_features) if w2.bias is None else w2.bias
    return w2.out_features, floats(w1), floats(b1), floats(w2.weight), floats(b2)
