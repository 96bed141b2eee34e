"""What the networks of the tests are built from: layers as strangers write them, and a network in a few lines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

IMAGE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Named modules and a forward, so that a network is a few lines."""

    def __init__(self, forward: Callable[..., Any], **modules: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self._forward = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(self, *args, **kwargs)


class FrozenNorm(nn.Module):
    """A batch norm that has become constants."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(1, channels, 1, 1) + 0.5)
        self.register_buffer("shift", torch.randn(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Any:
        return x * self.scale + self.shift


class NormAct(nn.BatchNorm2d):
    """A batch norm with its activation inside, as some model zoos have."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(super().forward(x))


class OwnNorm(nn.Module):
    """Someone's own batch norm, no subclass of PyTorch's."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(channels)), nn.Parameter(torch.rand(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(F.batch_norm(x, self.mean, self.var, self.weight, self.bias, self.training))  # type: ignore[arg-type]


class Standardized(nn.Conv2d):
    """A convolution whose kernel is computed at each call, and whose padding is its own."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(F.pad(x, (1, 1, 1, 1)), weight)


class Blur(nn.Module):
    """Halves a map after smoothing it: a depthwise convolution with constants, called as a function."""

    def forward(self, x: Tensor) -> Tensor:
        kernel = x.new_ones(x.shape[1], 1, 3, 3) / 9
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), kernel, stride=2, groups=x.shape[1])


@dataclass
class Found:
    """An output that is an object."""

    logits: Tensor
    features: list[Tensor]


def conv(inputs: int, outputs: int, kernel: int = 3, **settings: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **settings)


def block(inputs: int, outputs: int, kernel: int = 3, **settings: Any) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, kernel, bias=False, **settings), nn.BatchNorm2d(outputs), nn.ReLU())


class Checkpointed(nn.Module):
    """An inverted residual block that is run again in the backward."""

    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.reentrant = block(3, 6), conv(6, 2), reentrant
        self.inner = nn.Sequential(block(6, 12, 1), block(12, 12, groups=12), conv(12, 6, 1))

    def forward(self, x: Tensor) -> Any:
        y = self.first(x)
        return self.last(y + checkpoint(self.inner, y, use_reentrant=self.reentrant))  # type: ignore[operator]


class Hooked(nn.Module):
    """What a layer makes is taken from a hook, which knows the network by a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = block(3, 6), conv(6, 2)
        self.first.register_forward_hook(lambda module, args, out: setattr(self, "seen", out))

    def forward(self, x: Tensor) -> Any:
        self.first(x)
        return self.last(self.seen)
