"""Small networks of many styles, trained and gated, and what a compiled one must give beside them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import sanp
from sanp.engine import Engine
from sanp.gating.network import GatedNetwork
from sanp.spm.module import SPMConfig


def conv_bn(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """Addition, in place, of branches with different live channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 16), nn.ReLU(inplace=True))
        self.first = nn.Sequential(*conv_bn(16, 24, stride=2), nn.ReLU(inplace=True), *conv_bn(24, 24))
        self.shortcut = nn.Sequential(*conv_bn(16, 24, kernel=1, stride=2))
        self.second = nn.Sequential(*conv_bn(24, 24), nn.ReLU(), *conv_bn(24, 24))
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.first(x)
        y += self.shortcut(x)
        y = F.relu_(y)
        return self.head(F.adaptive_avg_pool2d(F.relu(self.second(y) + y), 1).flatten(1))


class Inverted(nn.Module):
    """Depthwise convolutions, squeeze-and-excitation, hard swish: the style of MobileNetV3."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 8, stride=2), nn.Hardswish())
        self.expand = nn.Sequential(*conv_bn(8, 24, kernel=1), nn.ReLU6())
        self.depthwise = nn.Sequential(*conv_bn(24, 24, kernel=5, groups=24), nn.Hardswish())
        self.squeeze = nn.Sequential(nn.Conv2d(24, 6, 1), nn.ReLU(), nn.Conv2d(6, 24, 1), nn.Hardsigmoid())
        self.project = nn.Sequential(*conv_bn(24, 8, kernel=1))
        self.head = nn.Sequential(
            nn.Conv2d(8, 20, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(20, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        y = y * self.squeeze(y.mean((2, 3), keepdim=True))
        return self.head(x + self.project(y))


class Shuffled(nn.Module):
    """Split, shuffled and concatenated channels, grouped convolutions: the style of ShuffleNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.branch = nn.Sequential(*conv_bn(8, 8, groups=2), nn.LeakyReLU(0.2), *conv_bn(8, 8, kernel=1), nn.ReLU())
        self.last = nn.Sequential(*conv_bn(16, 12, stride=2), nn.PReLU(12))
        self.head = nn.Linear(12 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = self.stem(x).chunk(2, dim=1)
        x = torch.cat([kept, self.branch(changed)], 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.head(self.last(x).flatten(1))


class Dense(nn.Module):
    """Batch norm before the convolution, concatenation, average pooling: the style of DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 6 * i), nn.ReLU(), nn.Conv2d(8 + 6 * i, 6, 3, padding=1)) for i in range(3)
        )
        self.transition = nn.Sequential(nn.BatchNorm2d(26), nn.GELU(), nn.Conv2d(26, 10, 1), nn.AvgPool2d(2))
        self.head = nn.Linear(10, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(self.transition(x).amax((2, 3)))


class Dilated(nn.Module):
    """Branches of several kernels and dilations, upsampling, two outputs: what the native part knows only in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 10, (3, 5), padding=(1, 2)), nn.ELU(), nn.MaxPool2d(2))
        self.wide = nn.Conv2d(10, 7, 3, padding=3, dilation=3)
        self.tall = nn.Conv2d(10, 9, (5, 1), padding=(2, 0))
        self.mix = nn.Sequential(nn.Conv2d(16, 12, 1), nn.Tanh())
        self.last = nn.Conv2d(12, 4, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.stem(x)
        y = self.mix(torch.cat([self.wide(x), self.tall(x)], 1))
        map_ = self.last(F.interpolate(y, scale_factor=2.0, mode="bicubic"))
        return map_.softmax(1), {"features": y}


class Sequence(nn.Module):
    """One-dimensional convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(4, 12, 5, padding=2), nn.BatchNorm1d(12), nn.ReLU(), nn.Conv1d(12, 20, 3, stride=2), nn.Sigmoid()
        )
        self.head = nn.Linear(20, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(2))


EXAMPLES: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (3, 18, 22)),
    "inverted": (Inverted, (3, 20, 20)),
    "shuffled": (Shuffled, (3, 16, 16)),
    "dense": (Dense, (3, 24, 20)),
    "dilated": (Dilated, (2, 12, 14)),
    "sequence": (Sequence, (4, 33)),
}


def trained_like(network: nn.Module, shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    """Batch norms with statistics and weights that are not the initial ones."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(0, 0.3, generator=generator)
    network.train()
    with torch.no_grad():
        for _ in range(3):
            network(torch.randn(8, *shape, generator=generator))
    return network.eval()


def gated_network(
    net: nn.Module, x: Tensor, *, seed: int = 0, spread: float = 1.0, config: SPMConfig | None = None
) -> GatedNetwork:
    """A gated copy whose gates depend on the image and close about half of the channels.

    ``spread`` is the standard deviation of the weights that make the saliencies.
    """
    gated = sanp.gate(net, x, spm=config)
    generator = torch.Generator().manual_seed(seed)
    for layer in gated.layers.values():
        saliency = layer.spm.saliency
        saliency.w2.weight.data.normal_(0, spread, generator=generator)
        if saliency.w2.bias is not None:
            saliency.w2.bias.data.normal_(0, 0.5, generator=generator)
        if isinstance(saliency.standardize, nn.Module) and hasattr(saliency.standardize, "mean"):
            saliency.standardize.mean.normal_(0, 0.2, generator=generator)
            saliency.standardize.var.uniform_(0.5, 2, generator=generator)
        layer.spm.threshold.fill_(0.1)
    return gated.eval()


def outputs(network: object, *args: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return tree_leaves(network(*args))  # type: ignore[operator]


def assert_same(fast: Engine, network: nn.Module, x: Tensor) -> None:
    for given, expected in zip(outputs(fast, x), outputs(network, x), strict=True):
        assert given.shape == expected.shape
        assert float((given - expected).abs().max()) <= 1e-4 * float(expected.abs().max())
