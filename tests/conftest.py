"""What many tests need: one thread, a tiny network and tiny batches."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def repeatable() -> Iterator[None]:
    """Every test starts from the same random numbers, on one thread."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    yield


class TwoConvs(nn.Module):
    """3 > 2 by 3x3 with a batch norm, 2 > 4 by 1x1 without one; small enough to count by hand on 4x4 images."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 2, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(2)
        self.second = nn.Conv2d(2, 4, 1)
        self.classifier = nn.Linear(4, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        y: Tensor = self.classifier(torch.relu(self.second(x)).mean((2, 3)))
        return y


class SmallNet(nn.Module):
    """Three convolutions, wide enough for gates to have something to choose."""

    def __init__(self, num_classes: int = 4, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return y


@pytest.fixture
def two_convs() -> TwoConvs:
    return TwoConvs()


@pytest.fixture
def small_net() -> SmallNet:
    return SmallNet()


def coloured_squares(count: int, *, seed: int = 0, size: int = 8) -> tuple[Tensor, Tensor]:
    """Four classes that a small network learns in seconds: which quarter of a noisy image is bright."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    images = 0.5 * torch.randn(count, 3, size, size, generator=generator)
    half = size // 2
    for index, label in enumerate(labels.tolist()):
        top, left = half * (label // 2), half * (label % 2)
        images[index, label % 3, top : top + half, left : left + half] += 1.5
    return images, labels


@pytest.fixture
def squares_loader() -> list[tuple[Tensor, Tensor]]:
    """Eight batches of 64."""
    images, labels = coloured_squares(512)
    return list(zip(images.split(64), labels.split(64), strict=True))


@pytest.fixture
def squares_test() -> list[tuple[Tensor, Tensor]]:
    images, labels = coloured_squares(1024, seed=1)
    return [(images, labels)]
