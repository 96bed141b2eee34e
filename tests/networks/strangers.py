"""Small networks that do what strangers' networks do: every way of calling a convolution that gate must see through."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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


def chain(*between: nn.Module) -> nn.Module:
    """A convolution, what is to be seen through, and a convolution."""
    return nn.Sequential(conv(3, 6), *between, conv(6, 4))


def functional_norm(n: Net, x: Tensor) -> Tensor:
    y = F.batch_norm(n.a(x), n.norm.running_mean, n.norm.running_var, n.norm.weight, n.norm.bias, n.training)
    return n.b(F.relu(y))  # type: ignore[no-any-return]


def shift(n: Net, x: Tensor) -> Tensor:
    """Writes into memory of its own, piece by piece."""
    y, out = n.a(x), torch.zeros(len(x), 8, *x.shape[2:], dtype=x.dtype)
    out[:, :3, 1:] = y[:, :3, :-1]
    out[:, 3:6] = y[:, 3:]
    return n.b(out)  # type: ignore[no-any-return]


def in_place(n: Net, x: Tensor) -> Tensor:
    """Changes part of a tensor through a view, and reads the whole afterwards."""
    y = n.a(x)
    y[:, :2] += n.c(x)[:, :2]
    y[:, 2].mul_(0)
    return n.b(F.relu_(y))  # type: ignore[no-any-return]


def frames(n: Net, x: Tensor) -> Tensor:
    """A video: frames in the batch, then pooled."""
    y = n.b(n.a(x.flatten(0, 1)))
    return n.fc(y.mean((2, 3)).unflatten(0, x.shape[:2]).mean(1))  # type: ignore[no-any-return]


def folded_later(n: Net, x: Tensor) -> Tensor:
    """Two crops of each sample go into the batch half way."""
    y = n.a(x)
    return n.b(torch.cat((y[..., :4], y[..., 4:])))  # type: ignore[no-any-return]


def mixed_batch(n: Net, x: Tensor) -> Tensor:
    """The neighbour's features are added, which are zero where the neighbour's gates are closed."""
    y = n.a(x)
    return n.b(y.flip(0) * 0.5) + n.c(y + y.roll(1, 0)) + n.d(y.mean(0, keepdim=True).expand_as(y))  # type: ignore[no-any-return]


def attention(n: Net, x: Tensor) -> Tensor:
    """Positions attend to positions: a pruned channel of the values stays zero."""
    q, k, v = n.q(x).flatten(2), n.k(x).flatten(2), n.v(x).flatten(2)
    weights = torch.bmm(q.transpose(1, 2), k).softmax(-1)
    return n.out(torch.bmm(v, weights).unflatten(2, x.shape[2:]))  # type: ignore[no-any-return]


def shuffled(n: Net, x: Tensor) -> Tensor:
    left, right = n.a(x).chunk(2, 1)
    y = torch.cat((left, n.b(right)), 1).unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)
    return n.c(y[:, torch.tensor([5, 1, 0, 7])])  # type: ignore[no-any-return]


def excited(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.b(y * torch.sigmoid(n.up(F.relu(n.down(y.mean((2, 3), keepdim=True))))))  # type: ignore[no-any-return]


def stacked(n: Net, x: Tensor) -> Tensor:
    """Branches averaged in a dimension before the batch."""
    return n.c(torch.stack((n.a(x), n.b(x))).mean(0))  # type: ignore[no-any-return]


def in_a_list(n: Net, x: Tensor) -> Tensor:
    for layer in n.order:
        x = F.relu(layer(x))
    return x


def listed() -> nn.Module:
    net = Net(in_a_list, a=conv(3, 4), b=conv(4, 4))
    net.order = [net.a, net.b]
    return net


def twice(n: Net, x: Tensor) -> Tensor:
    return n.b(F.relu(n.norm(n.a(F.relu(n.norm(n.a(x)))))))  # type: ignore[no-any-return]


def twice_with_two_norms(n: Net, x: Tensor) -> Tensor:
    return n.b(F.relu(n.second(n.a(F.relu(n.first(n.a(x)))))))  # type: ignore[no-any-return]


def depthwise_twice(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.c(n.b(y) + n.b(F.relu(n.b(y))))  # type: ignore[no-any-return]


IMAGE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))

STRANGERS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "no batch norm, a bias": (lambda: chain(nn.ReLU()), IMAGE),
    "a functional batch norm": (
        lambda: Net(functional_norm, a=conv(3, 6), norm=nn.BatchNorm2d(6), b=conv(6, 4)),
        IMAGE,
    ),
    "a frozen batch norm": (lambda: chain(FrozenNorm(6), nn.ReLU()), IMAGE),
    "a batch norm with its activation inside": (lambda: chain(NormAct(6)), IMAGE),
    "a batch norm of one's own": (lambda: chain(OwnNorm(6)), IMAGE),
    "an instance norm": (lambda: chain(nn.InstanceNorm2d(6, affine=True), nn.ReLU()), IMAGE),
    "a group norm": (lambda: chain(nn.GroupNorm(2, 6), nn.ReLU()), IMAGE),
    "batch norms that track nothing": (lambda: chain(nn.BatchNorm2d(6, track_running_stats=False)), IMAGE),
    "activations that keep zero": (
        lambda: chain(
            nn.LeakyReLU(), nn.PReLU(), nn.SiLU(), nn.GELU(), nn.Hardswish(), nn.ReLU6(), nn.ELU(), nn.Mish()
        ),
        IMAGE,
    ),
    "activations that do not": (lambda: nn.Sequential(chain(nn.Sigmoid()), nn.Softplus(), conv(4, 2)), IMAGE),
    "pooling, dropout, padding, resizing": (
        lambda: chain(
            nn.MaxPool2d(2),
            nn.Dropout(),
            nn.ZeroPad2d(1),
            nn.ReflectionPad2d(1),
            nn.Upsample(scale_factor=2),
            nn.AvgPool2d(2),
        ),
        IMAGE,
    ),
    "max unpooling": (
        lambda: Net(
            lambda n, x: n.b(F.max_unpool2d(*F.max_pool2d(n.a(x), 2, return_indices=True), 2)),
            a=block(3, 6),
            b=conv(6, 4),
        ),
        IMAGE,
    ),
    "padding by reflection": (
        lambda: nn.Sequential(conv(3, 6, padding_mode="reflect"), conv(6, 4, padding_mode="reflect")),
        IMAGE,
    ),
    "padding around": (
        lambda: nn.Sequential(conv(3, 6, padding_mode="circular"), conv(6, 4, padding_mode="circular")),
        IMAGE,
    ),
    "padding by repetition": (
        lambda: nn.Sequential(conv(3, 6, padding_mode="replicate"), conv(6, 4, padding_mode="replicate")),
        IMAGE,
    ),
    "one dimension": (
        lambda: nn.Sequential(nn.Conv1d(3, 6, 5), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 4, 3, dilation=2)),
        torch.randn(1, 3, 20),
    ),
    "three dimensions": (
        lambda: nn.Sequential(nn.Conv3d(3, 6, 3), nn.BatchNorm3d(6), nn.ReLU(), nn.Conv3d(6, 4, 1)),
        torch.randn(1, 3, 4, 6, 6),
    ),
    "groups": (lambda: nn.Sequential(block(3, 8), block(8, 8, groups=4), conv(8, 4, groups=2)), IMAGE),
    "depthwise": (
        lambda: nn.Sequential(block(3, 8, 1), block(8, 8, groups=8), block(8, 4, 1), conv(4, 8, groups=4), conv(8, 2)),
        IMAGE,
    ),
    "a blurring pool": (lambda: nn.Sequential(block(3, 6), Blur(), conv(6, 4)), IMAGE),
    "transposed": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.a(x), output_size=[16, 16])),
            a=block(3, 6),
            b=nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, groups=2),
            c=conv(8, 2),
        ),
        IMAGE,
    ),
    "a kernel that is computed": (
        lambda: nn.Sequential(Standardized(3, 6, 3), nn.ReLU(), Standardized(6, 4, 3)),
        IMAGE,
    ),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(conv(3, 6)), nn.ReLU(), conv(6, 4)),
        IMAGE,
    ),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(conv(3, 6)), nn.ReLU(), conv(6, 4)),
        IMAGE,
    ),
    "a module used twice": (lambda: Net(twice, a=conv(3, 3), norm=nn.BatchNorm2d(3), b=conv(3, 4)), IMAGE),
    "a module used twice with two batch norms": (
        lambda: Net(
            twice_with_two_norms, a=conv(3, 3), first=nn.BatchNorm2d(3), second=nn.BatchNorm2d(3), b=conv(3, 4)
        ),
        IMAGE,
    ),
    "a depthwise module used three times": (
        lambda: Net(depthwise_twice, a=block(3, 6), b=conv(6, 6, groups=6), c=conv(6, 2)),
        IMAGE,
    ),
    "modules in a list and a dict": (
        lambda: Net(
            lambda n, x: n.table["b"](n.layers[1](n.layers[0](x))),
            layers=nn.ModuleList([conv(3, 6), nn.BatchNorm2d(6)]),
            table=nn.ModuleDict({"b": conv(6, 4)}),
        ),
        IMAGE,
    ),
    "modules in a plain list": (listed, IMAGE),
    "an object as output": (
        lambda: Net(lambda n, x: Found(logits=n.b(y := n.a(x)), features=[y]), a=block(3, 6), b=conv(6, 4)),
        IMAGE,
    ),
    "a dict as output": (lambda: Net(lambda n, x: {"out": [n.b(n.a(x))]}, a=block(3, 6), b=conv(6, 4)), IMAGE),
    "keywords": (
        lambda: Net(lambda n, *, image, scale: n.b(n.a(image) * scale), a=block(3, 6), b=conv(6, 4)),
        {"image": IMAGE, "scale": 2.0},
    ),
    "several arguments": (
        lambda: Net(lambda n, left, right: n.b(n.a(left) + n.c(right)), a=block(3, 6), b=conv(6, 4), c=block(1, 6)),
        (IMAGE, IMAGE[:, :1]),
    ),
    "a list of inputs": (
        lambda: Net(lambda n, images: n.b(n.a(images[0]) - n.a(images[1])), a=block(3, 6), b=conv(6, 4)),
        [IMAGE, IMAGE],
    ),
    "writing piece by piece": (lambda: Net(shift, a=block(3, 6), b=conv(8, 4)), IMAGE),
    "writing through a view": (lambda: Net(in_place, a=conv(3, 6), b=conv(6, 4), c=conv(3, 6)), IMAGE),
    "frames in the batch": (
        lambda: Net(frames, a=block(3, 6), b=block(6, 4), fc=nn.Linear(4, 2)),
        IMAGE.expand(3, 3, 8, 8)[None],
    ),
    "crops in the batch half way": (lambda: Net(folded_later, a=block(3, 6), b=block(6, 4)), IMAGE),
    "samples that are mixed": (
        lambda: Net(mixed_batch, a=block(3, 6), b=conv(6, 4), c=conv(6, 4), d=conv(6, 4)),
        IMAGE,
    ),
    "attention between positions": (
        lambda: Net(attention, q=conv(3, 4, 1), k=conv(3, 4, 1), v=block(3, 6, 1), out=conv(6, 2)),
        IMAGE,
    ),
    "split, shuffle and pick": (lambda: Net(shuffled, a=block(3, 8), b=block(4, 4), c=conv(4, 2)), IMAGE),
    "squeeze and excitation": (
        lambda: Net(excited, a=block(3, 8), down=conv(8, 2, 1), up=conv(2, 8, 1), b=conv(8, 2)),
        IMAGE,
    ),
    "branches stacked": (lambda: Net(stacked, a=block(3, 6), b=block(3, 6), c=conv(6, 2)), IMAGE),
    "a pixel shuffle": (
        lambda: nn.Sequential(block(3, 8), nn.PixelShuffle(2), conv(2, 4), nn.PixelUnshuffle(2), conv(16, 2)),
        IMAGE,
    ),
    "a shortcut padded with zero channels": (
        lambda: Net(
            lambda n, x: n.c(F.pad(y := n.a(x), (0, 0, 0, 0, 1, 1)) + n.b(y)),
            a=block(3, 4),
            b=block(4, 6),
            c=conv(6, 2),
        ),
        IMAGE,
    ),
    "a scale that starts at zero": (
        lambda: Net(
            lambda n, x: n.c(n.a(x) * n.scale), a=block(3, 4), scale=nn.Parameter(torch.zeros(4, 1, 1)), c=conv(4, 2)
        ),
        IMAGE,
    ),
    "patches": (
        lambda: Net(
            lambda n, x: n.b(F.fold(F.unfold(n.a(x), 3, padding=1), (8, 8), 3, padding=1)), a=block(3, 6), b=conv(6, 2)
        ),
        IMAGE,
    ),
    "channels last": (
        lambda: Net(
            lambda n, x: n.b(n.fc(n.a(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)),
            a=block(3, 6),
            fc=nn.Linear(6, 5),
            b=conv(5, 2),
        ),
        IMAGE,
    ),
    "a lone convolution": (lambda: conv(3, 6), IMAGE),
}
"""what a network does to how it is built and an example input"""
