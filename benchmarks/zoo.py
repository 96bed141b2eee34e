"""Networks of other people's model zoos at 224x224, untrained: pytorchcv's, and ConvNeXt of transformers."""

import contextlib
import importlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.gating.accounting import mean_kept
from sanp.gating.network import GatedNetwork
from sanp.spm.module import SPM
from sanp.spm.recording import decisions_of, record
from sanp.spm.saliency import PredictedSaliency, descriptor

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
SPREAD = 0.2
"""deviation of the saliencies of an untrained network: nearly all are between 0.5 and 1.5"""
LEAST = 0.25
"""the least variance of a channel that statistics keep, as a share of the mean over the channels"""
HALVINGS = 7
"""steps of the search for the share of closed channels"""
MISS = 0.015
"""how far the share of the FLOPs that is left may be from what was asked for"""


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
    """Gives untrained gates random saliencies near 1, and thresholds so that this share of the FLOPs is left.

    Every layer closes the same share of its channels, a mean over the images; which ones differs by image. Batch norms
    and the statistics of the descriptors are estimated under these gates, as training would: what a layer puts out is
    as large as what comes in, and nothing overflows or vanishes in fifty layers. Raises :class:`SanpError` if an output
    is not finite, or if another share of the FLOPs is left.

    Statistics are also those of the images with noise, on which compiling compares the engine with torch: where the
    descriptors of an image lie far from all that were seen, random saliencies multiply rounding errors a thousandfold.
    """
    generator = torch.Generator().manual_seed(0)
    setter = _GateSetter(gated)
    with torch.no_grad():
        for spm in setter.spms:
            spm.saliency.wake(generator)
        setter.closed = 1 - kept**0.5
        with _estimating(gated):
            setter.run(images)
        setter.closed = _closed_for(setter, images, kept) if kept < 1 else 0.0
        setter.run(images)
        with record(gated) as gates:
            outputs = gated(images)
    left = mean_kept(gated.cost, decisions_of(gates))
    if not bool(outputs.isfinite().all()):
        raise SanpError(f"outputs are NaN or infinite with {left:.1%} of the FLOPs left: a time would be torch's")
    if abs(left - kept) > MISS:
        raise SanpError(f"{left:.1%} of the FLOPs are left where {kept:.1%} were asked for: no gates have that cost")


def noisy(images: Tensor) -> Tensor:
    """The images with noise of half their deviation."""
    return images + 0.5 * images.std() * torch.randn(images.shape, generator=torch.Generator().manual_seed(1))


class _GateSetter:
    """Sets the threshold of every gate on the way of a forward, so that a share of its channels is closed."""

    def __init__(self, gated: GatedNetwork) -> None:
        self.gated = gated
        self.spms = [layer.spm for layer in gated.layers.values()]
        self.closed = 0.0
        """the share of the channels that is closed"""

    def run(self, images: Tensor) -> float:
        """One forward that brings all saliencies near 1 and sets all thresholds; the share that is kept."""

        def set_gate(spm: SPM, given: tuple[Tensor, ...]) -> None:
            _narrow(spm.saliency, given[0])
            saliencies = spm.saliency(given[0]).flatten()
            below = saliencies.min() - 1
            seen = saliencies[: saliencies.numel() // 2]  # of the images without noise
            spm.threshold.copy_(torch.quantile(seen, self.closed) if self.closed else below)

        hooks = [spm.register_forward_pre_hook(set_gate) for spm in self.spms]
        try:
            with record(self.gated) as gates:
                self.gated(torch.cat([images, noisy(images)]))
        finally:
            for hook in hooks:
                hook.remove()
        decided = {layer: decision[: len(images)] for layer, decision in decisions_of(gates).items()}
        return mean_kept(self.gated.cost, decided)


def _closed_for(setter: _GateSetter, images: Tensor, kept: float) -> float:
    """The share of closed channels, found by bisection, that leaves this share of the FLOPs."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        setter.closed = (low + high) / 2
        low, high = (setter.closed, high) if setter.run(images) > kept else (low, setter.closed)
    return (low + high) / 2


def _narrow(saliency: PredictedSaliency, x: Tensor) -> None:
    """Standardises the descriptors on ``x``, and gives the saliencies a deviation of :data:`SPREAD` around 1."""
    d = descriptor(x)
    saliency.standardize.mean.copy_(d.mean(0))
    saliency.standardize.var.copy_(d.var(0).clamp(min=LEAST * float(d.var(0).mean())))
    random = saliency(x) - 1
    factor = SPREAD / random.std().clamp(min=1e-6)
    saliency.w2.weight.mul_(factor)
    saliency.w2.bias.sub_(1).mul_(factor).add_(1 - factor * random.mean())


@contextlib.contextmanager
def _estimating(network: nn.Module) -> Iterator[None]:
    """Inside, batch norms use the statistics of the batch and keep those of the last one; nothing else trains.

    The variance of a channel that no image opened is none that other gates could be run with: it is raised.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.training, norm.momentum = True, 1.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.training, norm.momentum = False, momentum
            norm.running_var.clamp_(min=LEAST * float(norm.running_var.mean()))
