"""ResNet-18: 2-2-2-2 basic blocks after a stem for small images, 555.4 M multiply-adds at 32x32, or for large ones.

The paper says 501 M for it: docs/deviations.md.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from sanp.backbones.stem import Stem, stem_for

STAGE_WIDTHS = (64, 128, 256, 512)
BLOCKS_PER_STAGE = 2


def stem_layers(stem: Stem) -> nn.Sequential:
    """A 3x3 convolution, or for large images one of 7x7 with stride 2 and a max-pool; batch norm and ReLU after it."""
    if stem == "small":
        conv = nn.Conv2d(3, STAGE_WIDTHS[0], 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(STAGE_WIDTHS[0]), nn.ReLU())
    conv = nn.Conv2d(3, STAGE_WIDTHS[0], 7, 2, 3, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(STAGE_WIDTHS[0]), nn.ReLU(), nn.MaxPool2d(3, 2, 1))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: the identity, or a 1x1 convolution where the shape changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, width, H / stride, W / stride)
        """relu(branch(x) + shortcut(x))"""
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """Stem, four stages of two basic blocks, global average, one linear layer to ``num_classes``.

    ``stem`` is for small or for large images, see :func:`stem_for`.
    """

    smallest_image = 32
    stem_for = staticmethod(stem_for)

    def __init__(self, num_classes: int = 10, *, stem: Stem = "small") -> None:
        super().__init__()
        first = stem_layers(stem)
        self.conv, self.bn = first[0], first[1]
        self.pool = first[3] if stem == "large" else nn.Identity()
        blocks: list[nn.Module] = []
        channels = STAGE_WIDTHS[0]
        for stage, width in enumerate(STAGE_WIDTHS):
            for index in range(BLOCKS_PER_STAGE):
                blocks.append(BasicBlock(channels, width, stride=2 if stage > 0 and index == 0 else 1))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, num_classes)
        """Logits; any input of 32x32 or more."""
        features = self.blocks(self.pool(F.relu(self.bn(self.conv(x)))))
        y: Tensor = self.classifier(features.mean((2, 3)))
        return y
