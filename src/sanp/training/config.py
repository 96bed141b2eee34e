"""The settings of training: epochs, optimizers, losses and what follows the last step."""

from dataclasses import dataclass
from typing import Literal

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """Settings of the training stages; the defaults are those of the quick preset."""

    pretrain_epochs: int = 20
    """epochs of pretraining the dense network; not used if a pretrained network is given"""
    warmup_epochs: int = 1
    """epochs of the warm-up stage, which trains the SPMs alone"""
    warmup_trains: Literal["spms", "all but kernels"] = "spms"
    """what the warm-up trains: the SPMs alone, or all parameters but those of convolution kernels (paper)"""
    joint_epochs: int = 12
    """epochs of the joint stage, which trains the network and the SPMs with the cost loss"""
    lr: float = 0.05
    """peak learning rate of the network's own parameters (not the SPMs) after pretraining"""
    pretrain_lr: float = 0.1
    """peak learning rate in pretraining"""
    normless: float = 0.1
    """factor on both for a network without any normalisation layer, which larger steps destroy; 1: none"""
    pretrain_size: float = 1.0
    """side of the images at the start of pretraining, as a share of their own, to which it grows; 1: no resizing"""
    momentum: float = 0.9
    """momentum of SGD"""
    nesterov: bool = True
    """use Nesterov momentum in SGD"""
    weight_decay: float = 5e-4
    """weight decay of SGD"""
    schedule: Literal["cosine", "step"] = "cosine"
    """learning rate over a stage; cosine: a linear rise, then half a cosine; step: divided by 10 every step_epochs"""
    rise: float = 0.15
    """share of the steps of a stage over which the learning rate rises (not for the schedule step)"""
    step_epochs: int = 100
    """epochs after which the schedule step divides the learning rate by 10"""
    spm_optimizer: Literal["adamw", "sgd"] = "adamw"
    """optimizer of the SPMs; adamw: no weight decay, constant rate between a rise and a fall; sgd: as the network's"""
    spm_lr: float | None = None
    """peak learning rate of the SPMs; none: 3e-3, or up to 5e-2 if the steps are too few to close a channel"""
    label_smoothing: float = 0.1
    """label smoothing of the cross entropy"""
    dropout: float | None = None
    """rate of all dropout layers of the network; none: they keep their own"""
    distill: float = 0.7
    """share of the distillation loss (the dense network is the teacher) after warm-up; 0: no distillation"""
    temperature: float = 2.0
    """temperature of distillation: divides the logits of the teacher and of the network"""
    settle: float | None = None
    """last share of the joint stage without noise and soft gates; none: the method chooses (SANP: all of the stage)"""
    norm_batches: int = 24
    """batches to estimate batch norm statistics on after training, with the gates of evaluation; 0: do not"""
    calibrate_images: int = 1000
    """training images on which the thresholds are calibrated to the budget after training; 0: do not"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """number format of training; auto: bf16 if the processor has instructions for it, else fp32"""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("pretrain_epochs", "warmup_epochs", "joint_epochs", "norm_batches", "calibrate_images"):
            if getattr(self, name) < 0:
                raise SanpError(f"{name} is {getattr(self, name)}: give 0 or more")
        for name in ("lr", "pretrain_lr", "normless", "spm_lr", "temperature", "step_epochs"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise SanpError(f"{name} is {getattr(self, name)}: give more than 0")
        if not 0 <= self.momentum < 1 or self.weight_decay < 0:
            raise SanpError(
                f"momentum is {self.momentum} and weight_decay {self.weight_decay}: give momentum in [0, 1), decay >= 0"
            )
        if self.nesterov and self.momentum == 0:
            raise SanpError("momentum is 0: Nesterov's needs more than 0; give nesterov=False too")
        if not 0 < self.pretrain_size <= 1:
            raise SanpError(f"pretrain_size is {self.pretrain_size}: give a share of the side, above 0 and at most 1")
        for name in ("rise", "settle", "distill", "label_smoothing", "dropout"):
            if getattr(self, name) is not None and not 0 <= getattr(self, name) <= 1:
                raise SanpError(f"{name} is {getattr(self, name)}: give a share from 0 to 1")
