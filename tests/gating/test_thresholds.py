"""Calibration: thresholds with which a wanted share of the dense FLOPs is computed for given images."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.gating.level_search import CLOSE
from sanp.gating.thresholds import batches_of, kept_on
from tests.networks.parts import IMAGE, block, conv
from tests.networks.strangers import STRANGERS

IMAGES = torch.randn(200, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def network() -> sanp.GatedNetwork:
    return sanp.gate(nn.Sequential(block(3, 32), block(32, 32), conv(32, 16)), IMAGE)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_mean_kept_becomes_the_budget(share: float) -> None:
    gated = network()
    reached = gated.set_budget(share, IMAGES)
    assert abs(reached - share) <= 2 * CLOSE
    assert kept_on(gated.eval(), [IMAGES]) == pytest.approx(reached)
    assert gated.budget is not None and gated.budget.value == share


def test_one_network_serves_many_budgets_in_any_order() -> None:
    gated = network()
    for share in (0.7, 0.3, 0.9, 0.4):
        assert abs(gated.set_budget(share, IMAGES) - share) <= 2 * CLOSE


def test_modes_are_put_back_and_nothing_is_drawn() -> None:
    gated = network().train()
    state = torch.get_rng_state()
    gated.set_budget("50%", IMAGES[:50])
    assert gated.training and torch.equal(torch.get_rng_state(), state)


def test_images_may_come_in_batches_with_labels() -> None:
    pairs = [(part, torch.zeros(len(part))) for part in IMAGES.split(64)]
    assert [len(part) for part in batches_of(pairs)] == [64, 64, 64, 8]
    assert [len(part) for part in batches_of(IMAGES, size=150)] == [150, 50]
    assert network().set_budget(0.5, pairs) == pytest.approx(network().set_budget(0.5, IMAGES), abs=2 * CLOSE)


def test_frames_in_the_batch_are_counted_one_by_one() -> None:
    make, example = STRANGERS["frames in the batch"]
    gated = sanp.gate(make(), example).eval()
    assert kept_on(gated, [torch.randn(4, 3, 3, 8, 8)]) == pytest.approx(1.0)


def test_no_images_or_no_gated_layer_is_an_error() -> None:
    with pytest.raises(sanp.SanpError, match="no images"):
        network().set_budget(0.5, [])
    dense = sanp.gate(nn.Sequential(conv(3, 4)), IMAGE, skip=["0"])
    with pytest.raises(sanp.SanpError):
        dense.set_budget(0.5, IMAGES)


def test_a_network_of_several_inputs_takes_batches_of_them() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.a(left) - self.b(right)

    left, right = torch.randn(2, 40, 3, 8, 8)
    for example in ((left[:1], right[:1]), {"left": left[:1], "right": right[:1]}):
        gated = sanp.gate(Two(), example).eval()
        batches: list[Any] = [(left, right, torch.zeros(40))]
        if isinstance(example, dict):
            batches = [{"right": right, "left": left}]
        assert gated.set_budget(0.6, batches) == pytest.approx(0.6, abs=0.02)
    with pytest.raises(sanp.SanpError, match="a batch"):
        gated.set_budget(0.6, ["left", "right"])


class Overflows(nn.Module):
    """Too large for float32, but for images of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = block(3, 8), conv(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) * 1e30 * 1e30 * x.abs().sum()


def test_a_budget_with_which_outputs_are_not_finite_is_an_error_and_changes_nothing() -> None:
    gated = sanp.gate(Overflows(), torch.zeros(1, 3, 8, 8)).eval()
    before = {name: value.clone() for name, value in gated.state_dict().items()}
    with pytest.raises(sanp.SanpError, match="NaN or infinity for the images"):
        gated.set_budget("50%", IMAGES)
    assert all(torch.equal(value, before[name]) for name, value in gated.state_dict().items())
