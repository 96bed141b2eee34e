"""Architectures that people bring, each as small as it can be and written as such code is written."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.networks.parts import Checkpointed, Hooked, block, conv

IMAGE = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
VIDEO = IMAGE[:, :, :8, :8].expand(3, 3, 8, 8)[None].contiguous()


class UNet(nn.Module):
    """Transposed convolutions on the way up, with what was kept on the way down beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([block(3, 6), block(6, 8), block(8, 10)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(10, 8, 2, 2), nn.ConvTranspose2d(8, 6, 4, 2, 1, bias=False)])
        self.join = nn.ModuleList([block(16, 8), block(12, 6)])
        self.out = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Any:
        kept = []
        for layer in self.down:
            x = layer(x if not kept else F.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat((kept.pop(), up(x)), 1))
        return self.out(x)


class ShuffleUnit(nn.Module):
    """ShuffleNetV2: half the channels pass, the other half go through, then all are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        depthwise = [conv(half, half, groups=half, bias=False), nn.BatchNorm2d(half)]
        self.right = nn.Sequential(block(half, half, 1), *depthwise, block(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        y = torch.cat((left, self.right(right)), 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class InvertedResidual(nn.Module):
    """EfficientNet's block: expand, depthwise, excite, project, and in training drop the branch of some samples."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Sequential(conv(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.SiLU(True))
        self.depthwise = nn.Sequential(conv(hidden, hidden, groups=hidden, bias=False), nn.BatchNorm2d(hidden))
        self.squeeze, self.excite = conv(hidden, 2, 1), conv(2, hidden, 1)
        self.project = nn.Sequential(conv(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.depthwise(self.expand(x)), inplace=True)
        y = self.project(y * torch.sigmoid(self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(y, 1))))))
        if self.training:
            y = y * y.new_empty(len(y), 1, 1, 1).bernoulli_(0.8) / 0.8
        return y + x


class DenseBlock(nn.Module):
    """DenseNet: every layer reads all before it, and is run again in the backward to save memory."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        widths = [channels + 4 * i for i in range(3)]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), block(n, 8, 1), conv(8, 4)) for n in widths
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat((x, checkpoint(layer, x, use_reentrant=False)), 1)  # type: ignore[list-item]
        return x


class Bottleneck(nn.Module):
    """ResNeXt: groups in the middle, an addition in place, a last batch norm that starts at zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.middle = block(channels, 8, 1), block(8, 8, groups=4)
        self.last, self.norm = conv(8, channels, 1, bias=False), nn.BatchNorm2d(channels)
        nn.init.zeros_(self.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.last(self.middle(self.first(x))))
        y += x
        return F.relu_(y)


class HighResolution(nn.Module):
    """HRNet: two resolutions side by side, each added to the other after resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse = block(3, 6), block(3, 8, stride=2)
        self.up, self.down = conv(8, 6, 1), conv(6, 8, stride=2)
        self.head = nn.Conv2d(14, 3, 1)

    def forward(self, x: Tensor) -> Any:
        fine, coarse = self.fine(x), self.coarse(x)
        up = F.interpolate(self.up(coarse), size=fine.shape[-2:], mode="bilinear", align_corners=False)
        fine, coarse = F.relu(fine + up), F.relu(coarse + self.down(fine))
        return self.head(torch.cat((fine, F.interpolate(coarse, scale_factor=2)), 1))


class Siamese(nn.Module):
    """Two images through one trunk, compared."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(block(3, 8, stride=2), block(8, 8))
        self.fuse, self.fc = conv(16, 6), nn.Linear(6, 1)

    def forward(self, left: Tensor, right: Tensor) -> Any:
        a, b = self.trunk(left), self.trunk(right)
        y = F.relu(self.fuse(torch.cat(((a - b).abs(), a * b), 1)))
        return self.fc(y.mean((2, 3))), F.cosine_similarity(a.flatten(1), b.flatten(1))


class Reader(nn.Module):
    """A recurrent network reads the columns of a feature map."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(block(3, 8), nn.MaxPool2d((4, 1)), block(8, 6))
        self.rnn, self.fc = nn.LSTM(24, 8, batch_first=True, bidirectional=True), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x)  # (N, 6, 4, W)
        y, _ = self.rnn(y.permute(0, 3, 1, 2).flatten(2))
        return F.log_softmax(self.fc(y), -1)


class ConvLSTM(nn.Module):
    """One convolution for every frame of a video, its state carried along."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.out = conv(3 + 4, 16), nn.Conv2d(4, 2, 1)

    def forward(self, frames: Tensor) -> Any:  # (N, T, C, H, W)
        h = c = frames.new_zeros(len(frames), 4, *frames.shape[-2:])
        for x in frames.unbind(1):
            i, f, g, o = self.gates(torch.cat((x, h), 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.out(h)


class Detector(nn.Module):
    """YOLO's manner: heads in a dict on two scales, boxes from a grid and anchors, dicts as output."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse, self.across = block(3, 8, stride=2), block(8, 8, stride=2), conv(8, 8, 1)
        self.heads = nn.ModuleDict({"box": conv(8, 8, 1), "score": conv(8, 2, 1)})
        self.register_buffer("anchors", torch.rand(1, 2, 2, 1, 1))

    def forward(self, *, images: Tensor) -> dict[str, dict[str, Tensor]]:
        fine = self.fine(images)
        coarse = self.across(self.coarse(fine))
        found = {}
        for name, level in {"fine": fine + F.interpolate(coarse, scale_factor=2), "coarse": coarse}.items():
            box = self.heads["box"](level).unflatten(1, (2, 4))
            grid = torch.stack(torch.meshgrid(*map(torch.arange, level.shape[2:]), indexing="ij"))
            boxes = torch.cat((box[:, :, :2].sigmoid() + grid, box[:, :, 2:].exp() * self.anchors), 2)
            found[name] = {"boxes": boxes.flatten(3), "scores": self.heads["score"](level).sigmoid()}
        return found


class DynamicKernels(nn.Module):
    """Each sample has a kernel of its own, mixed from four: one grouped convolution for the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mix, self.last = block(3, 8), nn.Linear(8, 4), conv(6, 2, 1)
        self.kernels = nn.Parameter(torch.randn(4, 6, 8, 3, 3) / 9)

    def forward(self, x: Tensor) -> Any:
        y = self.first(x)
        kernels = torch.einsum("nk,koihw->noihw", self.mix(y.mean((2, 3))).softmax(-1), self.kernels).flatten(0, 1)
        y = F.conv2d(y.flatten(0, 1)[None], kernels, padding=1, groups=len(x)).view(len(x), 6, *x.shape[2:])
        return self.last(F.relu(y))


class Attention(nn.Module):
    """Positions attend to each other, by PyTorch's own operator and by its module."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.qkv, self.out = block(3, 8, stride=4), conv(8, 24, 1), conv(8, 4, 1)
        self.module = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        y = self.stem(x)
        n, c, h, w = y.shape
        q, k, v = self.qkv(y).view(n, 3, 2, 4, h * w).transpose(-1, -2).unbind(1)
        tokens = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(n, c, h * w).mT
        tokens = tokens + self.module(tokens, tokens, tokens, need_weights=False)[0]
        return self.out(tokens.mT.view(n, c, h, w))


def head(*layers: nn.Module) -> nn.Module:
    """What comes before a mean and a linear layer."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3))


ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "U-Net": (UNet, IMAGE),
    "ShuffleNetV2": (lambda: head(block(3, 8), ShuffleUnit(8), ShuffleUnit(8), conv(8, 4, 1)), IMAGE),
    "EfficientNet": (lambda: head(block(3, 6, stride=2), InvertedResidual(6, 12), InvertedResidual(6, 12)), IMAGE),
    "DenseNet, checkpointed": (lambda: head(conv(3, 8), DenseBlock(8), nn.BatchNorm2d(20), nn.ReLU()), IMAGE),
    "ResNeXt": (lambda: head(block(3, 8), Bottleneck(8), Bottleneck(8)), IMAGE),
    "HRNet": (HighResolution, IMAGE),
    "two images through one trunk": (Siamese, (IMAGE, 2 * IMAGE.flip(3))),
    "a recurrent network over features": (Reader, IMAGE),
    "a recurrent convolution": (ConvLSTM, VIDEO),
    "a detector with dicts": (Detector, {"images": IMAGE}),
    "kernels of each sample's own": (DynamicKernels, IMAGE),
    "attention": (Attention, IMAGE),
    "a checkpointed block": (Checkpointed, IMAGE),
    "a hook that means the network": (Hooked, IMAGE),
    "a script inside": (lambda: nn.Sequential(block(3, 6), torch.jit.script(block(6, 6)), conv(6, 2)), IMAGE),
    "half precision": (lambda: nn.Sequential(block(3, 6), block(6, 6), conv(6, 2)).half(), IMAGE.half()),
    "channels last": (
        lambda: nn.Sequential(block(3, 6), conv(6, 2)).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        IMAGE.to(memory_format=torch.channels_last),
    ),
    "lazy layers": (lambda: nn.Sequential(nn.LazyConv2d(6, 3), nn.LazyBatchNorm2d(), nn.ReLU(), conv(6, 2)), IMAGE),
}
"""name to how it is built and an example input"""
