"""Networks of other people's model zoos at 224x224, untrained: pytorchcv's, and ConvNeXt of transformers."""

import importlib

import torch
from torch import Tensor, nn

from sanp.gating.accounting import mean_kept
from sanp.gating.network import GatedNetwork
from sanp.spm.recording import decisions_of, record

PYTORCHCV = {
    "mobilenet_v2": ("MobileNetV2", "mobilenetv2", "mobilenetv2_w1"),
    "mobilenet_v3": ("MobileNetV3-Large", "mobilenetv3", "mobilenetv3_large_w1"),
    "efficientnet_b0": ("EfficientNet-B0", "efficientnet", "efficientnet_b0"),
    "mnasnet": ("MnasNet-B1", "mnasnet", "mnasnet_b1"),
    "ghostnet": ("GhostNet", "ghostnet", "ghostnet"),
    "shufflenet_v2": ("ShuffleNetV2", "shufflenetv2", "shufflenetv2_w1"),
    "regnet_y": ("RegNetY-400MF", "regnet", "regnety004"),
    "resnext50": ("ResNeXt-50", "resnext", "resnext50_32x4d"),
    "densenet121": ("DenseNet-121", "densenet", "densenet121"),
    "hrnet": ("HRNet-W18-S", "hrnet", "hrnet_w18_small_v1"),
    "resnet50": ("ResNet-50", "resnet", "resnet50"),
    "zoo_resnet18": ("ResNet-18 (pytorchcv)", "resnet", "resnet18"),
    "vgg16": ("VGG-16-BN", "vgg", "bn_vgg16"),
}
"""by name on the command line: name in the table, module of pytorchcv, function that builds it"""

NAMES = {name: entry[0] for name, entry in PYTORCHCV.items()} | {"convnext_t": "ConvNeXt-T"}
"""names in the table"""
SHAPE = (3, 224, 224)
FEW = 4
"""images that thresholds are set on"""


class Logits(nn.Module):
    """A network of transformers that gives its scores alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).logits


def build(name: str) -> nn.Module:
    """An untrained network of 1,000 classes."""
    if name == "convnext_t":
        import transformers

        return Logits(transformers.ConvNextForImageClassification(transformers.ConvNextConfig(num_labels=1000)))
    _, module, function = PYTORCHCV[name]
    return getattr(importlib.import_module(f"pytorchcv.models.{module}"), function)()


def close_gates(gated: GatedNetwork, images: Tensor, kept: float) -> None:
    """Gives untrained gates random saliencies, and thresholds so that this share of the FLOPs is left.

    Every layer closes the same share of its channels, a mean over the images; which ones differs by image.
    """
    generator = torch.Generator().manual_seed(0)
    spms = [layer.spm for layer in gated.layers.values()]
    closed = 0.0

    def set_threshold(spm: nn.Module, given: tuple[Tensor]) -> None:
        spm.threshold.copy_(torch.quantile(spm.saliency(given[0]).flatten(), closed) - 1e3 * (closed == 0))

    with torch.no_grad():
        for spm in spms:
            spm.saliency.wake(generator)
        hooks = [spm.register_forward_pre_hook(set_threshold) for spm in spms]
        low, high = 0.0, 1.0
        for _ in range(8 if kept < 1 else 1):
            with record(gated) as gates:
                gated(images[:FEW])
            left = mean_kept(gated.cost, decisions_of(gates))
            low, high = (closed, high) if left > kept else (low, closed)
            closed = (low + high) / 2
        for hook in hooks:
            hook.remove()
