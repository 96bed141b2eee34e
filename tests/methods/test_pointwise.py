"""Methods on a network with linear layers over the channels of its maps, which count as convolutions."""

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.methods import METHODS
from sanp.training.watching import run_stages
from tests.conftest import coloured_squares
from tests.methods.conftest import task


class Mixing(nn.Module):
    """Two convolutions, and between them two linear layers with a shortcut around them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.expand, self.project = nn.Linear(16, 32), nn.Linear(32, 16)
        self.conv2, self.bn2 = nn.Conv2d(16, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn(self.conv(x))).permute(0, 2, 3, 1)
        y = y + self.project(torch.relu(self.expand(y)))
        y = torch.relu(self.bn2(self.conv2(y.permute(0, 3, 1, 2))))
        out: Tensor = self.head(y.mean((2, 3)))
        return out


@pytest.mark.parametrize("method", ["static", "ns", "l1", "weight"])
def test_methods_of_every_kind_count_linear_layers_over_channels_and_meet_the_budget(method: str) -> None:
    torch.manual_seed(0)
    net = Mixing()
    images, labels = coloured_squares(128, seed=3)
    pixels = images.shape[2] * images.shape[3]
    by_hand = pixels * ((27 + 1) * 16 + (16 + 1) * 32 + (32 + 1) * 16) + pixels // 4 * (16 * 9 + 1) * 16
    METHODS[method].check(net, task("80%"))
    pruned = run_stages(METHODS[method].stages(net, task("80%")))
    report = sanp.evaluate(pruned, [(images, labels)])
    assert report.dense_flops == by_hand
    assert report.kept == pytest.approx(0.8, abs=0.04)
