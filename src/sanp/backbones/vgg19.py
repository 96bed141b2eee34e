"""VGGNet as Network Slimming uses it for CIFAR: 16 convolutions, one linear layer, 398.1 M multiply-adds."""

from torch import Tensor, nn

PLAN = (64, 64, "M", 128, 128, "M", 256, 256, 256, 256, "M", 512, 512, 512, 512, "M", 512, 512, 512, 512)


class VGG19(nn.Module):
    """3x3 convolutions with batch norm and ReLU, four max-pools, global average, a linear layer to ``num_classes``."""

    smallest_image = 32

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in PLAN:
            if isinstance(width, str):
                layers.append(nn.MaxPool2d(2))
                continue
            norm = nn.BatchNorm2d(width)
            nn.init.constant_(norm.weight, 0.5)  # Network Slimming starts its scales there
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), norm, nn.ReLU()]
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, num_classes)
        """Logits; any input of 32x32 or more."""
        y: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return y
