"""The plain settings of a run, without those of its parts. No torch here: a help page shows them."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a run trains on, what it prunes, and how far."""

    data: str = "digits"
    """data set: digits, cifar10, cifar100 or imagefolder:PATH"""
    backbone: str = "m_cifarnet"
    """m_cifarnet, vgg19, resnet18, resnet50 or mobilenet_v2; one of your own by --network"""
    weights: str | None = None
    """safetensors file to start from, taken wherever name and shape fit"""
    method: str = "sanp"
    """pruning method; dense: none"""
    budget: str = "35%"
    """computation to keep: a share (35%), a count (60M), a time of an image (1.2ms), or a range (20%..60%)"""
    max_flops: str | None = None
    """most that an image may cost (40% or 60M)"""
    preset: Literal["quick", "paper"] = "quick"
    """quick: reaches the budget in few epochs; paper: as the paper's text says"""
    seed: int = 0
    """seed of the random numbers"""
    batch_size: int = 128
    """images in a step of all processes"""
    image_size: int = 32
    """side of the images in pixels"""
    resize: Literal["crop", "pad", "stretch"] = "crop"
    """how images become square: crop (the middle), pad (with borders) or stretch"""
    least_steps: int = 25
    """steps that an epoch over a folder of images has at the least: few images are gone through several times in it"""
    augment: Literal["short", "cutout", "standard", "none"] = "short"
    """changes of training images: short (few epochs), cutout (some thirty), standard (crops, flips), none"""
    limit: int | None = None
    """number of training images to use; none: all"""
    validate: int | float | None = None
    """training images to hold out and measure on, a number or a share; the test images are read once"""
    report_on: Literal["test", "held-out"] = "test"
    """images of the final report; held-out: those of validate, and the test images are not read, as a trial wants"""
    pretrained: str | None = None
    """dense network to start from: a file, or the name of one in the package"""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto, cpu, cuda or mps; auto: CUDA or MPS if there is one, else the processor"""
    start_from: str | None = None
    """trained gated network to go on from: a file, or the name of one in the package; the dense one is its teacher"""
    threads: int | None = None
    """number of processor threads; none: as many as PyTorch chooses"""
    test_every: int = 1
    """epochs between two evaluations, on the held-out images or else on the test images; 0: only at the end"""
