"""MobileNetV2 (Sandler et al., 2018) of width 1: inverted residual blocks around depthwise convolutions."""

from torch import Tensor, nn

from sanp.backbones.stem import Stem, stem_for

# Expansion, output channels, blocks, stride of the first block: table 2 of the paper.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
FIRST_WIDTH, LAST_WIDTH = 32, 1280


def block(channels: int, out: int, size: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution, batch norm and ReLU6."""
    conv = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out), nn.ReLU6()]


class InvertedResidual(nn.Module):
    """Widens by 1x1, filters each channel by 3x3, narrows by 1x1 without activation; adds its input if it can."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        layers = block(channels, wide) if expansion > 1 else []
        layers += block(wide, wide, 3, stride, groups=wide)
        layers += block(wide, out)[:2]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, out, H / stride, W / stride)
        """The layers, and x where the shape stays."""
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    """Stem, seven stages of inverted residuals, a 1x1 convolution, global average, dropout, one linear layer.

    The linear layer has ``num_classes`` outputs, ``dropout`` is the rate before it. With the ``stem`` for small images,
    it and the second stage keep the size.
    """

    smallest_image = 32
    stem_for = staticmethod(stem_for)

    def __init__(self, num_classes: int = 10, *, stem: Stem = "small", dropout: float = 0.2) -> None:
        super().__init__()
        layers = block(3, FIRST_WIDTH, 3, 1 if stem == "small" else 2)
        channels = FIRST_WIDTH
        for stage, (expansion, out, count, stride) in enumerate(STAGES):
            for index in range(count):
                first = 1 if index > 0 or (stem == "small" and stage == 1) else stride
                layers.append(InvertedResidual(channels, out, first, expansion))
                channels = out
        self.features = nn.Sequential(*layers, *block(channels, LAST_WIDTH))
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(LAST_WIDTH, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, num_classes)
        """Logits; any input of 32x32 or more."""
        y: Tensor = self.classifier(self.dropout(self.features(x).mean((2, 3))))
        return y
