"""SANP, the method of the paper: saliencies from the layer's input, Improved Semantic Hashing, one budget for all."""

from dataclasses import dataclass

from sanp.gating.gating import MakeSPM
from sanp.methods.parts.gating_method import GatingMethod
from sanp.spm.module import build_spm


@dataclass(frozen=True, kw_only=True)
class SANP(GatingMethod):
    """SANP as a pruning method; its settings are those in the sections spm, objective, controller and fit."""

    name: str = "sanp"
    layer_adaptive: bool = True
    sample_adaptive: bool = True

    def spm_maker(self) -> MakeSPM:
        """The Saliency-and-Pruning Modules of the paper."""
        return build_spm
