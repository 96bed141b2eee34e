"""SANP: saliency from the layer's input, Improved Semantic Hashing, one budget for all layers and images."""

from sanp.methods.method import GatingMethod
from sanp.spm import build_spm

SANP = GatingMethod(name="sanp", layer_adaptive=True, sample_adaptive=True, make_spm=build_spm)
