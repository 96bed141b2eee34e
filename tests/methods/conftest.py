"""A task that every method can be run on in a second or two, and a residual network to run it with."""

import pytest
import torch
from torch import Tensor, nn

from sanp.training.config import FitConfig
from sanp.training.task import Task
from sanp.training.three_stages import pretrain_stage
from tests.conftest import SmallNet, coloured_squares

QUICK = FitConfig(
    pretrain_epochs=4, warmup_epochs=1, joint_epochs=3, precision="fp32", norm_batches=4, calibrate_images=256
)


class Residual(nn.Module):
    """A stem, a block with an channel shortcut, one with a 1x1 shortcut, a linear layer."""

    def __init__(self, width: int = 16, num_classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.inner = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.inner_norm = nn.BatchNorm2d(width)
        self.outer = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.outer_norm = nn.BatchNorm2d(width)
        self.down = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.shortcut = nn.Conv2d(width, 2 * width, 1, 2)
        self.classifier = nn.Linear(2 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem_norm(self.stem(x)))
        y = torch.relu(self.inner_norm(self.inner(x)))
        x = torch.relu(x + self.outer_norm(self.outer(y)))
        x = torch.relu(self.down(x) + self.shortcut(x))
        z: Tensor = self.classifier(x.mean((2, 3)))
        return z


def task(budget: object = "50%", config: FitConfig = QUICK) -> Task:
    images, labels = coloured_squares(256)
    loader = list(zip(images.split(32), labels.split(32), strict=True))
    return Task(loader=loader, budget=budget, config=config)


@pytest.fixture(scope="session")
def trained() -> dict[str, nn.Module]:
    """The two networks, trained on the squares."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    networks: dict[str, nn.Module] = {"chain": SmallNet(), "residual": Residual()}
    for net in networks.values():
        for _ in pretrain_stage(net, task()).run():
            pass
    return networks
