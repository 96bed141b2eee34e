"""A network that was trained for one budget says so when it is set to another."""

import warnings
from pathlib import Path

import pytest
import torch

import sanp
from sanp.core.errors import BudgetWarning
from sanp.gating.trained_budgets import TrainedBudgets
from tests.conftest import SmallNet

IMAGES = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def network() -> sanp.GatedNetwork:
    """As if it had been trained for 40 %."""
    gated = sanp.gate(SmallNet(), IMAGES[:1])
    gated.set_budget("40%", IMAGES)
    gated.trained = TrainedBudgets(0.4, 0.4)
    return gated


def levels(gated: sanp.GatedNetwork) -> list[float]:
    return [layer.spm.level for layer in gated.layers.values()]


def test_more_than_it_was_trained_for_is_refused_and_changes_nothing() -> None:
    gated = network()
    before = levels(gated)
    with pytest.raises(sanp.SanpError, match=r'above 40.0%.*budget="40%..60%"'):
        gated.set_budget("60%", IMAGES)
    assert levels(gated) == before
    assert gated.set_budget("60%", IMAGES, force=True) == pytest.approx(0.6, abs=0.02)


def test_less_than_it_was_trained_for_is_told() -> None:
    gated = network()
    with pytest.warns(BudgetWarning, match="below 40.0%"):
        assert gated.set_budget("30%", IMAGES) == pytest.approx(0.3, abs=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gated.set_budget("30%", IMAGES, force=True)
        gated.set_budget("40%", IMAGES)
        gated.set_budget("40.9%", IMAGES)


def test_a_call_that_fails_does_not_spoil_the_next() -> None:
    """With saliencies that are all alike no threshold leaves 90 %; levels then stay near the saliencies."""
    gated = network()
    for layer in gated.layers.values():
        torch.nn.init.zeros_(layer.spm.saliency.w2.weight[1:])  # type: ignore[index, union-attr]
        layer.spm.saliency.w2.weight.data[0] = 1e-6  # type: ignore[union-attr, index]
    with pytest.warns(BudgetWarning, match=r"90\.0% was asked for"):
        gated.set_budget("90%", IMAGES, force=True)
    assert all(abs(level) < 10 for level in levels(gated))
    first = network().set_budget("30%", IMAGES, force=True)
    again = network()
    again.set_budget("99%", IMAGES, force=True)
    assert again.set_budget("30%", IMAGES, force=True) == pytest.approx(first, abs=5e-3)


def test_a_trained_network_that_misses_says_so() -> None:
    gated = sanp.gate(SmallNet(width=2), IMAGES[:1])
    gated.trained = TrainedBudgets(0.9, 0.9)
    with pytest.warns(BudgetWarning, match="was asked for"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is below 90")
        gated.set_budget("45%", IMAGES[:1])


def test_training_and_files_say_what_a_network_was_trained_for(tmp_path: Path) -> None:
    gated = sanp.gate(SmallNet(), IMAGES[:1])
    assert gated.trained is None
    sanp.Budget(gated, "25%")
    assert gated.trained == TrainedBudgets(0.25, 0.25)
    sanp.Budget(gated, "25%..60%")
    sanp.save(gated, tmp_path / "net.safetensors")
    loaded = sanp.load(tmp_path / "net.safetensors", SmallNet())
    assert isinstance(loaded, sanp.GatedNetwork) and loaded.trained == TrainedBudgets(0.25, 0.6)


def test_the_shipped_network_of_an_older_file_knows_its_budget() -> None:
    shipped = sanp.pretrained("m_cifarnet-cifar10-22")
    assert isinstance(shipped, sanp.GatedNetwork) and shipped.trained is not None
    assert shipped.trained.high == pytest.approx(0.223, abs=1e-3)
    with pytest.raises(sanp.SanpError, match=r"above 22\.3%"):
        shipped.set_budget("26%", torch.zeros(1, 3, 32, 32))
