"""A Saliency-and-Pruning Module as numbers for the native library: the standardisation folds into W1."""

import math

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.program import GateWeights
from sanp.engine.lowering.shapes import Floats
from sanp.engine.lowering.unsupported import Unsupported
from sanp.spm.binarize import SemanticHashing
from sanp.spm.module import SPM


def floats(tensor: Tensor) -> Floats:
    """A tensor as an array of float32."""
    array: Floats = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
    return array


def gate_weights(spm: SPM) -> GateWeights:
    """What the library needs to decide as ``spm`` does in evaluation."""
    if type(spm) is not SPM:
        raise Unsupported(f"the gate {type(spm).__name__}")
    saliency, binarize = spm.saliency.folded(), spm.binarize
    if saliency is None:
        raise Unsupported(f"the saliency {type(spm.saliency).__name__}")
    if not isinstance(binarize, SemanticHashing) and binarize.fixed_count is None:
        raise Unsupported(f"the binarizer {type(binarize).__name__}")
    channels = len(saliency.b2)
    return GateWeights(
        w1=floats(saliency.w1),
        b1=floats(saliency.b1),
        w2=floats(saliency.w2),
        b2=floats(saliency.b2),
        threshold=np.broadcast_to(floats(spm.threshold), (channels,)),
        scales=spm.scales,
        group=spm.group,
        top=binarize.fixed_count or 0,
        absolute=saliency.absolute,
        most=math.inf if spm.most is None else spm.most,
    )
