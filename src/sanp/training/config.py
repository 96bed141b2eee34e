"""How long and by what means a network is trained."""

from dataclasses import dataclass
from typing import Literal

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How long and by what means each stage trains; the defaults are the quick preset's."""

    pretrain_epochs: int = 20
    """epochs of the dense network, where none is given"""
    warmup_epochs: int = 1
    """epochs of the SPMs alone, kernels frozen"""
    joint_epochs: int = 12
    """epochs of everything, with the cost loss"""
    lr: float = 0.05
    """peak learning rate of the network's own parameters"""
    pretrain_lr: float = 0.1
    """peak learning rate in the pretrain stage"""
    momentum: float = 0.9
    """of SGD"""
    nesterov: bool = True
    """Nesterov's momentum"""
    weight_decay: float = 5e-4
    """of the network's own parameters"""
    schedule: Literal["cosine", "step"] = "cosine"
    """learning rate over a stage: one rise and a cosine down, or a tenth every step_epochs"""
    rise: float = 0.15
    """share of a stage over which the learning rate rises (cosine)"""
    step_epochs: int = 100
    """epochs between two falls (step)"""
    spm_optimizer: Literal["adamw", "sgd"] = "adamw"
    """of the SPMs: AdamW without decay on a level schedule, or SGD just as the network's own"""
    spm_lr: float | None = None
    """peak learning rate of the SPMs; if none, 3e-3, or more where a short stage could not close a channel in time"""
    label_smoothing: float = 0.1
    """of the cross entropy"""
    dropout: float | None = None
    """rate of the network's dropout layers; if none, what they have: few epochs want less of it"""
    distill: float = 0.7
    """weight of the dense network's answers beside the labels in the joint stage; 0 leaves them out"""
    temperature: float = 2.0
    """softens both answers in distillation"""
    settle: float | None = None
    """last share of the joint stage: no noise, hard gates only; if none, what suits the method (SANP: all of it)"""
    norm_batches: int = 24
    """batches to estimate batch norm statistics anew with evaluation's gates; 0 leaves them"""
    calibrate_images: int = 1000
    """training images to move the thresholds on until the budget is met; 0 leaves them"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """number format of training; auto is bf16 where the processor has it"""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("pretrain_epochs", "warmup_epochs", "joint_epochs", "norm_batches", "calibrate_images"):
            if getattr(self, name) < 0:
                raise SanpError(f"{name} is {getattr(self, name)}: give 0 or more")
        for name in ("lr", "pretrain_lr", "spm_lr", "temperature", "step_epochs"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise SanpError(f"{name} is {getattr(self, name)}: give more than 0")
        if not 0 <= self.momentum < 1 or self.weight_decay < 0:
            raise SanpError(
                f"momentum is {self.momentum} and weight_decay {self.weight_decay}: give momentum in [0, 1), decay >= 0"
            )
        if self.nesterov and self.momentum == 0:
            raise SanpError("momentum is 0: Nesterov's needs more than 0; give nesterov=False too")
        for name in ("rise", "settle", "distill", "label_smoothing", "dropout"):
            if getattr(self, name) is not None and not 0 <= getattr(self, name) <= 1:
                raise SanpError(f"{name} is {getattr(self, name)}: give a share from 0 to 1")
