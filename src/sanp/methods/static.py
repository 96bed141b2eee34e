"""STATIC (paper 5.1): saliencies from one learned vector, so that every image gets the same gates."""

from sanp.binarize import SemanticHashing
from sanp.methods.method import GatingMethod
from sanp.saliency import StaticSaliency
from sanp.spm import SPM, SPMConfig


def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """SANP's module with the descriptor replaced by a constant."""
    saliency = StaticSaliency(
        in_channels, out_channels, reduction=config.reduction, bias=config.bias, start=config.start
    )
    binarize = SemanticHashing(noise=config.noise, soft_share=config.soft_share, per=config.per)
    return SPM(saliency, binarize, group=config.group if out_channels % config.group == 0 else 1)


STATIC = GatingMethod(name="static", layer_adaptive=True, sample_adaptive=False, make_spm=make_spm)
