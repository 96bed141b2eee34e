"""The paper's three backbones and two more: ordinary networks that know nothing of pruning; imports core."""

from collections.abc import Callable

from torch import nn

from sanp.backbones.m_cifarnet import MCifarNet
from sanp.backbones.mobilenet_v2 import MobileNetV2
from sanp.backbones.resnet18 import ResNet18
from sanp.backbones.resnet50 import ResNet50
from sanp.backbones.vgg19 import VGG19
from sanp.core.checks import check_kind
from sanp.core.errors import SanpError, unknown_name

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "m_cifarnet": MCifarNet,
    "vgg19": VGG19,
    "resnet18": ResNet18,
    "resnet50": ResNet50,
    "mobilenet_v2": MobileNetV2,
}


def build(name: str, *, num_classes: int, image_size: int = 32) -> nn.Module:
    """A fresh backbone by its name in :data:`BACKBONES`, with Kaiming's initialisation as PyTorch gives it.

    ``num_classes`` is the number of its outputs, ``image_size`` the side of the images that it is for. Residual
    networks and MobileNetV2 have the stem for ImageNet if ``image_size`` is above 64, else the one for CIFAR.
    """
    check_kind("name", name, str, f"one of {', '.join(BACKBONES)}")
    check_kind("num_classes", num_classes, int, "a whole number")
    check_kind("image_size", image_size, int, "a whole number")
    if name not in BACKBONES:
        raise unknown_name("backbone", name, BACKBONES)
    if num_classes < 2:
        raise SanpError(f"{num_classes} classes: a classifier needs at least 2")
    smallest = getattr(BACKBONES[name], "smallest_image", 1)
    if image_size < smallest:
        raise SanpError(f"images of {image_size}x{image_size}: {name} takes {smallest}x{smallest} and larger")
    stem_for = getattr(BACKBONES[name], "stem_for", None)
    return BACKBONES[name](num_classes=num_classes, **({} if stem_for is None else {"stem": stem_for(image_size)}))


__all__ = ["BACKBONES", "VGG19", "MCifarNet", "MobileNetV2", "ResNet18", "ResNet50", "build"]
