"""M-CifarNet (Mayo's cifarnet; Zhao et al., 2018): eight 3x3 convolutions, 1.29 M parameters, 174.3 M multiply-adds."""

from torch import Tensor, nn

# Output channels, stride, padding; the first convolution has no padding, which makes 30x30 of 32x32.
LAYERS = ((64, 1, 0), (64, 1, 1), (128, 2, 1), (128, 1, 1), (128, 1, 1), (192, 2, 1), (192, 1, 1), (192, 1, 1))
DROPOUT_AFTER = (3, 6)


class MCifarNet(nn.Module):
    """Convolution, batch norm and ReLU eight times; global average; one linear layer to ``num_classes``.

    ``dropout`` is the rate of the two dropout layers.
    """

    smallest_image = 32

    def __init__(self, num_classes: int = 10, *, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for index, (width, stride, padding) in enumerate(LAYERS):
            layers += [nn.Conv2d(channels, width, 3, stride, padding, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            if index in DROPOUT_AFTER:
                layers.append(nn.Dropout(dropout))
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, num_classes)
        """Logits; any input of 32x32 or more."""
        y: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return y
