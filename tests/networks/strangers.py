"""Small networks that do what strangers' networks do: every way of calling a convolution that gate must see through."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.networks.forwards import (
    attention,
    chain,
    depthwise_twice,
    excited,
    folded_later,
    frames,
    functional_norm,
    in_place,
    listed,
    mixed_batch,
    shift,
    shuffled,
    stacked,
    twice,
    twice_with_two_norms,
)
from tests.networks.parts import IMAGE, Blur, Found, FrozenNorm, Net, NormAct, OwnNorm, Standardized, block, conv

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
