"""Writes into parts of tensors, differences, zeros and enlargements run natively, and are what torch computes."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.engine.agreement import disagreement
from tests.tools.engine_networks import STEPS, Random, wrong_network

IMAGES = torch.randn(5, 3, 10, 12, generator=torch.Generator().manual_seed(0))
Run = Callable[[nn.ModuleList, Tensor], Tensor]


class Net(nn.Module):
    """Three convolutions of eight channels, put together by ``run``."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 if not place else 8, 8, 3, padding=1) for place in range(3))
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.convs, x)


def slice_in_place(m: nn.ModuleList, x: Tensor) -> Tensor:
    y: Tensor = m[0](x)
    y[:, 2:5] += m[1](y)[:, :3]
    return F.relu(y)


def slice_read_after_its_base_was_written(m: nn.ModuleList, x: Tensor) -> Tensor:
    y = m[0](x)
    part = y[:, 3:6]
    y.mul_(2).add_(m[1](y))
    return torch.cat([part, y[:, :1]], 1)


def difference(m: nn.ModuleList, x: Tensor) -> Tensor:
    y = m[0](x)
    return torch.sub(m[1](y), m[2](y), alpha=2) + torch.add(y, m[2](y), alpha=-0.5)


def one_minus(m: nn.ModuleList, x: Tensor) -> Tensor:
    y = m[0](x)
    return m[1](y) * (1 - torch.sigmoid(m[2](y)))


def enlarged(m: nn.ModuleList, x: Tensor) -> Tensor:
    y = m[0](x)
    return F.interpolate(m[1](F.avg_pool2d(y, 2)), scale_factor=2) + y


def channels_of_zeros(m: nn.ModuleList, x: Tensor) -> Tensor:
    y = m[0](x)
    return F.pad(y, (0, 0, 0, 0, 1, 3)) + F.pad(m[1](y), (0, 0, 0, 0, 4, 0))


def zeros_like(m: nn.ModuleList, x: Tensor) -> Tensor:
    y = m[0](x)
    return torch.cat([torch.zeros_like(y), m[1](y)], 1)


CASES: tuple[Run, ...] = (
    slice_in_place, slice_read_after_its_base_was_written, difference, one_minus, enlarged,
    channels_of_zeros, zeros_like,
)  # fmt: skip


@pytest.mark.parametrize("run", CASES, ids=lambda run: run.__name__)
@pytest.mark.parametrize("kept", [None, "60%"])
def test_it_runs_natively_and_gives_what_torch_gives(run: Run, kept: str | None) -> None:
    torch.manual_seed(0)
    gated = sanp.gate(Net(run), IMAGES[:1]).eval()
    if kept is not None:
        gated.set_budget(kept, IMAGES)
    fast = sanp.compile(gated, IMAGES[:1], tune=False)
    assert fast.plan.native, str(fast.plan)
    assert disagreement(fast, gated, IMAGES) is None


def test_an_enlargement_by_no_whole_number_is_right() -> None:
    gated = sanp.gate(Net(lambda m, x: F.interpolate(m[0](x), size=(13, 17))), IMAGES[:1]).eval()
    fast = sanp.compile(gated, IMAGES[:1], tune=False)
    assert fast.plan.reasons() == ""
    with torch.no_grad():
        assert torch.allclose(fast(IMAGES), gated(IMAGES), atol=1e-5)


@pytest.mark.parametrize("part", range(3))
def test_random_networks_agree_with_themselves_compiled(part: int) -> None:
    seeds = range(8 * part, 8 * part + 8)
    assert [wrong for seed in seeds if (wrong := wrong_network(seed)) is not None] == []


def test_random_networks_have_every_kind_of_step() -> None:
    found = {name for seed in range(24) for name, _ in Random(seed).runs}
    assert found == set(STEPS)
