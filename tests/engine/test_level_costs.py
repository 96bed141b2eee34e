"""Budgets that a compiled copy of the network finds, as torch counts them; torch looks where the engine cannot."""

import warnings

import pytest
import torch
from torch import nn

import sanp
from sanp.core.errors import BudgetWarning
from sanp.engine import level_costs
from sanp.gating import compiled_search, thresholds
from sanp.gating.level_search import CLOSE
from sanp.gating.thresholds import kept_on
from sanp.gating.trained_budgets import TrainedBudgets
from tests.conftest import SmallNet
from tests.gating.test_thresholds import Overflows

IMAGES = torch.randn(300, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compiling pays for any number of images; gives the sizes of the batches that torch runs to count their cost."""
    monkeypatch.setattr(level_costs, "WORTH_COMPILING", 0)
    seen: list[int] = []

    def counted(network: sanp.GatedNetwork, batches: list[torch.Tensor]) -> float:
        seen.extend(map(len, batches))
        return kept_on(network, batches)

    monkeypatch.setattr(thresholds, "kept_on", counted)
    return seen


def test_the_engine_finds_the_budgets_in_any_order_without_a_forward_of_torch(forwards: list[int]) -> None:
    gated = sanp.gate(SmallNet(), IMAGES[:1])
    for share in (0.5, 0.2, 0.8, 0.3):
        reached = gated.set_budget(share, IMAGES)
        assert abs(reached - share) <= 2 * CLOSE and forwards == []
        assert kept_on(gated.eval(), [IMAGES]) == pytest.approx(reached, abs=1e-3)  # rounding may turn a decision
        assert len({layer.spm.level for layer in gated.layers.values()}) == 1


def test_few_images_are_tried_first_and_all_only_a_few_times(
    forwards: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    run = sanp.engine.Engine.run_recorded

    def counted(engine: sanp.engine.Engine, example: torch.Tensor, **settings: object) -> object:
        ran.append(len(example))
        return run(engine, example, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(sanp.engine.Engine, "run_recorded", counted)
    gated = sanp.gate(SmallNet(), IMAGES[:1])
    gated.set_budget(0.4, IMAGES)
    whole = [size for size in ran if size != compiled_search.BEGIN_ON]
    assert sum(whole) <= 8 * len(IMAGES) and set(whole) == {250, 50}  # batches of 250


def test_a_budget_under_a_cap_is_counted_by_the_engine_too(forwards: list[int]) -> None:
    gated = sanp.gate(SmallNet(), IMAGES[:1])
    reached = gated.set_budget(0.5, IMAGES, max_flops=0.5)
    assert forwards == []
    assert kept_on(gated.eval(), [IMAGES]) == pytest.approx(reached, abs=1e-3) and reached < 0.5


def test_where_the_engine_cannot_tell_torch_looks(forwards: list[int]) -> None:
    gated = sanp.gate(Overflows(), torch.zeros(1, 3, 8, 8)).eval()
    with pytest.raises(sanp.SanpError, match="NaN or infinity for the images"):
        gated.set_budget("50%", IMAGES)
    assert forwards
    three = sanp.gate(nn.Sequential(nn.Conv3d(1, 8, 3), nn.ReLU(), nn.Conv3d(8, 4, 3)), torch.zeros(1, 1, 8, 8, 8))
    assert three.set_budget("50%", torch.randn(20, 1, 8, 8, 8)) == pytest.approx(0.5, abs=0.02)


def test_batches_that_do_not_fit_get_the_same_error_as_ever(forwards: list[int]) -> None:
    gated = sanp.gate(SmallNet(), IMAGES[:1])
    with pytest.raises(sanp.SanpError, match="does not run on images of"):
        gated.set_budget("50%", torch.randn(20, 4, 8, 8))


def test_a_budget_out_of_reach_is_told_and_the_next_one_is_met(forwards: list[int]) -> None:
    gated = sanp.gate(SmallNet(), IMAGES[:1])
    gated.set_budget(0.4, IMAGES)
    gated.trained = TrainedBudgets(0.4, 0.4)
    with torch.no_grad():  # channels of the last layer that no level near the others opens
        gated.layers["features.6"].spm.saliency.w2.bias[:12] = -1e6  # type: ignore[union-attr, index]
    with warnings.catch_warnings():
        warnings.simplefilter("error", BudgetWarning)
        assert gated.set_budget(0.41, IMAGES) == pytest.approx(0.41, abs=2 * CLOSE)
    assert gated.set_budget(0.3, IMAGES, force=True) == pytest.approx(0.3, abs=2 * CLOSE)
