"""Networks without normalisation are trained at a lower rate; a network that training ruins is told."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import sanp
from sanp.core.errors import ForgottenWarning
from sanp.training.config import FitConfig
from sanp.training.normless import has_norms, suited_rates
from sanp.training.task import Task, warn_if_forgotten


class FunctionalNorm(nn.Module):
    """A convolution whose batch norm is a function."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.register_buffer("running_mean", torch.zeros(4))
        self.register_buffer("running_var", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(self.conv(x), self.running_mean, self.running_var, training=self.training)


class ChannelNorm2d(nn.Module):
    """A norm of somebody's own."""


@pytest.mark.parametrize(
    ("network", "normed"),
    [
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Linear(4, 2)), False),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), True),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4)), True),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4)), True),
        (nn.Sequential(nn.LayerNorm(4)), True),
        (nn.Sequential(ChannelNorm2d()), True),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.LocalResponseNorm(2)), False),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 4, 3))), False),
        (sanp.gate(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)), torch.zeros(1, 1, 8, 8)), False),
        (FunctionalNorm(), True),
    ],
)
def test_norms_are_found_as_layers_and_as_functions(network: nn.Module, normed: bool) -> None:
    assert has_norms(network) is normed


def test_a_network_without_norms_gets_a_tenth_of_both_rates_once() -> None:
    plain, config = nn.Conv2d(1, 4, 3), FitConfig(lr=0.05, pretrain_lr=0.1)
    suited = suited_rates(config, plain)
    assert (suited.lr, suited.pretrain_lr) == pytest.approx((0.005, 0.01))
    assert suited_rates(suited, plain) == suited
    assert suited_rates(config, nn.Sequential(plain, nn.BatchNorm2d(4))) == config
    assert suited_rates(FitConfig(normless=1.0), plain) == FitConfig(normless=1.0)


Batches = list[tuple[Tensor, Tensor]]


@pytest.fixture(scope="module")
def digits() -> Batches:
    """Scikit-learn's digits as images of 16x16, 1,024 of them in batches of 64."""
    found = load_digits()
    images = F.interpolate(torch.tensor(found.images, dtype=torch.float32)[:, None] / 16, size=16)
    return list(zip(images[:1024].split(64), torch.tensor(found.target)[:1024].split(64), strict=True))


@pytest.fixture(scope="module")
def plain(digits: Batches) -> nn.Module:
    """A network without norms that classifies them."""
    torch.manual_seed(1)
    net = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(26):
        for x, y in digits:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    assert right(net.eval(), digits) > 0.85
    return net


def right(network: nn.Module, batches: Batches) -> float:
    """The share of the images that are classified correctly."""
    with torch.no_grad():
        return sum(int((network(x).argmax(1) == y).sum()) for x, y in batches) / sum(len(y) for _, y in batches)


def test_a_trained_network_without_norms_keeps_what_it_knows(plain: nn.Module, digits: Batches) -> None:
    gated = sanp.gate(plain, digits[0][0])
    sanp.fit(gated, digits, "50%", config=FitConfig(precision="fp32"), epochs=4, progress=False)
    assert right(gated.eval(), digits) > 0.85


def test_a_network_that_lost_what_its_teacher_knows_is_told(plain: nn.Module, digits: Batches) -> None:
    task = Task(loader=digits, budget="50%", teacher=plain)
    lost = copy.deepcopy(plain)
    warn_if_forgotten(lost, task)  # nothing is lost yet, and a warning is an error here
    nn.init.zeros_(lost[4].weight)  # type: ignore[index]
    warn_if_forgotten(lost, replace(task, teacher=None))
    with pytest.warns(ForgottenWarning, match=r"took what the network knew.*learning rate \(lr=0\.05 now"):
        warn_if_forgotten(lost, task)
