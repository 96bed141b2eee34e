"""ResNet-50 (He et al., 2016) with the stride in the 3x3 convolutions: 3-4-6-3 bottleneck blocks."""

import torch.nn.functional as F
from torch import Tensor, nn

from sanp.backbones.resnet18 import stem_layers
from sanp.backbones.stem import Stem, stem_for

WIDTHS_AND_BLOCKS = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut: the identity, or a 1x1 convolution where the shape changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, 4 width, H / stride, W / stride)
        """relu(branch(x) + shortcut(x))"""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet50(nn.Module):
    """Stem, four stages of bottleneck blocks, global average, one linear layer to ``num_classes``.

    ``stem`` is for small or for large images, see :func:`stem_for`.
    """

    smallest_image = 32
    stem_for = staticmethod(stem_for)

    def __init__(self, num_classes: int = 10, *, stem: Stem = "small") -> None:
        super().__init__()
        self.stem = stem_layers(stem)
        blocks: list[nn.Module] = []
        channels = WIDTHS_AND_BLOCKS[0][0]
        for stage, (width, count) in enumerate(WIDTHS_AND_BLOCKS):
            for index in range(count):
                blocks.append(Bottleneck(channels, width, stride=2 if stage > 0 and index == 0 else 1))
                channels = EXPANSION * width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, num_classes)
        """Logits; any input of 32x32 or more."""
        y: Tensor = self.classifier(self.blocks(self.stem(x)).mean((2, 3)))
        return y
