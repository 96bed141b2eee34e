"""Faster dropout: the right share of zeros, the mean kept, and the same numbers from the same seed."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.training.dropout import FastDropout
from sanp.training.precision import Format


def dropped(x: Tensor, rate: float = 0.5, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    with FastDropout():
        return F.dropout(x, rate)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_as_many_are_zero_as_the_rate_says_and_the_others_are_scaled_by_what_keeps_the_mean(
    rate: float, dtype: torch.dtype
) -> None:
    y = dropped(torch.ones(400, 501, dtype=dtype), rate)
    share = float((y == 0).float().mean())
    assert share == pytest.approx(rate, abs=4 * (rate * (1 - rate) / y.numel()) ** 0.5)  # four standard deviations
    assert y.unique().tolist() == [0, pytest.approx(1 / (1 - rate), rel=4e-3)]  # bf16 has eight bits


def test_neighbours_are_dropped_independently() -> None:
    zero = (dropped(torch.ones(2**18)) == 0).float()
    for apart in (1, 2, 3, 4, 64):  # four share one draw of the generator
        together = float((zero[apart:] * zero[:-apart]).mean())
        assert together == pytest.approx(0.25, abs=0.005)


def test_the_gradient_is_what_the_features_were_multiplied_by() -> None:
    x = torch.full((64, 32), 3.0, requires_grad=True)
    y = dropped(x, 0.2)
    y.sum().backward()
    assert x.grad is not None and torch.equal(3 * x.grad, y.detach())


def test_the_seed_of_torch_decides() -> None:
    x = torch.ones(8, 16, 5, 5)
    assert torch.equal(dropped(x, seed=1), dropped(x, seed=1))
    assert not torch.equal(dropped(x, seed=1), dropped(x, seed=2))


def test_the_layout_of_the_memory_stays() -> None:
    x = torch.ones(4, 16, 5, 5).contiguous(memory_format=torch.channels_last)
    assert dropped(x).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("x", "arguments"),
    [
        (torch.ones(4, 6)[:, ::2], {}),
        (torch.ones(4, 6, dtype=torch.float64)[:0], {}),
        (torch.ones(4, 6), {"training": False}),
        (torch.ones(4, 6), {"p": 0.0}),
        (torch.ones(4, 6), {"p": 1.0}),
    ],
    ids=["gaps", "empty", "evaluation", "none", "all"],
)
def test_all_else_is_torchs_own(x: Tensor, arguments: dict[str, object]) -> None:
    torch.manual_seed(0)
    wanted = F.dropout(x, **arguments)  # type: ignore[arg-type]
    torch.manual_seed(0)
    with FastDropout():
        found = F.dropout(x, **arguments)  # type: ignore[arg-type]
    assert torch.equal(found, wanted)


def test_what_is_changed_in_place_is_torchs_own() -> None:
    x = torch.ones(64)
    with FastDropout():
        found = F.dropout(x, 0.5, inplace=True)
    assert found is x and set(x.tolist()) == {0.0, 2.0}


def test_a_network_with_dropout_layers_is_trained_with_it() -> None:
    net = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5))
    x = torch.randn(16, 8)
    torch.manual_seed(3)
    with Format(net, "fp32").autocast():
        found = net(x)
    assert torch.equal(found, dropped(net[0](x), seed=3))
