"""A forward that looks at numbers may take another way for another image, and so it runs in torch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.errors import SlowWarning
from sanp.tracing.tracer import trace_forward

Looks = Callable[[Tensor], float]


class Branches(nn.Module):
    """One of two convolutions, by what ``look`` sees in the features."""

    def __init__(self, look: Looks) -> None:
        super().__init__()
        self.first, self.one, self.two = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.look = look

    def forward(self, x: Tensor) -> Tensor:
        features = self.first(x)
        result: Tensor = self.one(features) if self.look(features) > 0 else self.two(features)
        return result


WAYS: dict[str, Looks] = {
    "item": lambda x: x.mean().item(),
    "bool": lambda x: 1.0 if x.mean() > 0 else -1.0,
    "tolist": lambda x: x.mean((1, 2, 3)).tolist()[0],
    "numpy": lambda x: float(x.numpy().mean()),
    "nonzero": lambda x: len((x > 0).nonzero()) - x.numel() / 2,
    "mask": lambda x: len(x[x > 0]) - x.numel() / 2,
    "equal": lambda x: 1.0 if torch.equal(x > 0, x.abs() > 0) else -1.0,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_network_that_looks_at_numbers_runs_in_torch_and_is_right(way: str) -> None:
    torch.manual_seed(0)
    net = Branches(WAYS[way]).eval().requires_grad_(False)
    nn.init.zeros_(net.first.bias)
    nn.init.ones_(net.first.weight)
    with pytest.warns(SlowWarning, match="another image may take another way"):
        fast = sanp.compile(net, torch.ones(1, 3, 8, 8))
    assert WAYS[way](torch.ones(1, 3, 8, 8)) * WAYS[way](-torch.ones(1, 3, 8, 8)) < 0  # it does take both
    for sign in (1.0, -1.0):
        x = sign * torch.rand(1, 3, 8, 8)
        assert torch.equal(fast(x), net(x))


@pytest.mark.parametrize("net", [nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())])
def test_a_plain_network_reads_nothing_back(net: nn.Module) -> None:
    assert trace_forward(net, torch.randn(2, 3, 8, 8)).read_back == []


def test_indices_that_are_known_before_the_forward_are_no_look_at_numbers() -> None:
    class Picks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            order = torch.linspace(0, 3, 4).tolist()  # numbers that no image changes
            y = self.conv(x)[:, [int(each) for each in order][::-1]]
            return y[:, torch.tensor([True, False, True, True])]

    net = Picks().eval()
    x = torch.randn(2, 3, 8, 8)
    assert trace_forward(net, x).read_back == []
    fast = sanp.compile(net, x)
    assert fast.plan.native
    assert torch.allclose(fast(x), net(x), atol=1e-5)


def test_a_network_that_draws_random_numbers_says_so() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), Draws()).eval()
    with pytest.warns(SlowWarning, match=r"it draws random numbers \(bernoulli_\)"):
        sanp.compile(net, torch.randn(2, 3, 8, 8))


class Draws(nn.Module):
    """Dropout in evaluation too."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, training=True)
