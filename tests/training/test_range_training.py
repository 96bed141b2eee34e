"""Training for a range of budgets: what spreading keeps, which budgets are drawn, and what comes out on a toy task."""

import copy
import functools
import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.errors import BudgetWarning
from sanp.training.range_training import drawn_share
from sanp.training.spreading import WIDTH, spread
from sanp.training.task import Task
from sanp.training.three_stages import fit_stages, pretrain_stage
from tests.conftest import SmallNet, coloured_squares

Batches = list[tuple[Tensor, Tensor]]
QUICK = sanp.FitConfig(pretrain_epochs=4, warmup_epochs=1, joint_epochs=24, precision="fp32", calibrate_images=512)


def pretrained(net: nn.Module, loader: Batches) -> nn.Module:
    for _ in pretrain_stage(net, Task(loader=loader, budget="50%", config=QUICK)).run():
        pass
    return net


@functools.cache
def trained() -> sanp.GatedNetwork:
    images, labels = coloured_squares(512)
    loader = list(zip(images.split(64), labels.split(64), strict=True))
    gated = sanp.gate(pretrained(SmallNet(), loader), images[:1])
    sanp.fit(gated, loader, "25%..60%", config=QUICK)
    return gated


@pytest.fixture
def ranged() -> sanp.GatedNetwork:
    return copy.deepcopy(trained())


def test_one_network_meets_every_budget_of_its_range(
    ranged: sanp.GatedNetwork, squares_loader: Batches, squares_test: Batches
) -> None:
    costs = []
    for share in (0.25, 0.3, 0.37, 0.45, 0.6, 0.25):  # in both directions, between the measured points too
        assert ranged.set_budget(share) == pytest.approx(share, abs=0.01)
        report = sanp.evaluate(ranged, squares_test)
        assert report.accuracy > 0.95
        assert sanp.evaluate(ranged, squares_loader).kept == pytest.approx(share, abs=0.015)
        costs.append(report.kept)
    assert costs[0] == costs[-1] and costs[:5] == sorted(costs[:5])


def test_a_file_holds_the_dial(
    ranged: sanp.GatedNetwork, small_net: nn.Module, squares_test: Batches, tmp_path: Path
) -> None:
    sanp.save(ranged, tmp_path / "dial.safetensors")
    loaded = sanp.load(tmp_path / "dial.safetensors", small_net)
    assert isinstance(loaded, sanp.GatedNetwork) and loaded.dial == ranged.dial
    for network in (ranged, loaded):
        network.set_budget("42%")
    first, second = (sanp.evaluate(network, squares_test).per_sample for network in (ranged, loaded))
    assert (first == second).all()


def test_outside_the_range_is_refused_or_told(ranged: sanp.GatedNetwork) -> None:
    with pytest.raises(sanp.SanpError, match=r"above 25\.0% to 60\.0%"):
        ranged.set_budget("80%")
    with pytest.raises(sanp.SanpError, match="given no images"):
        ranged.set_budget("80%", force=True)
    images = coloured_squares(128)[0]
    with pytest.warns(BudgetWarning, match=r"below 25\.0% to 60\.0%"):
        ranged.set_budget("15%", images)
    with pytest.raises(sanp.SanpError, match=r"above 25\.0% to 60\.0%"):
        ranged.set_budget("25%..80%", images)
    assert ranged.set_budget("60%") == pytest.approx(0.6, abs=0.01)


def test_a_larger_budget_opens_channels_whose_saliency_is_positive(
    ranged: sanp.GatedNetwork, squares_test: Batches
) -> None:
    """Those of a network that was trained for one budget are around -1 (docs/log.md)."""
    opened = []
    for share in ("25%", "55%"):
        ranged.eval().set_budget(share)
        with torch.no_grad(), sanp.record(ranged) as gates:
            ranged(squares_test[0][0])
        opened.append(torch.cat([made.saliency[made.decision > 0] for made in gates.values()]))
    assert len(opened[1]) > 1.3 * len(opened[0])
    assert float((opened[0] > 0.3).float().mean()) > 0.98 and float((opened[1] > 0).float().mean()) > 0.9


def test_spreading_keeps_what_the_smallest_budget_computes(small_net: nn.Module, squares_loader: Batches) -> None:
    """With constant saliencies exactly: the batch norm takes over what the saliency gains."""
    images = squares_loader[0][0]
    gated = sanp.gate(small_net, images).eval()
    for layer in gated.layers.values():
        with torch.no_grad():
            layer.spm.saliency.w2.bias.copy_(torch.linspace(-1, 1.3, 16))  # type: ignore[union-attr, operator]
    with torch.no_grad(), sanp.record(gated) as gates:
        before = gated(images)
    spread(gated, gates)
    with torch.no_grad(), sanp.record(gated) as spreaded:
        after = gated(images)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)
    for name, made in spreaded.items():
        assert torch.equal(made.decision, gates[name].decision)
        closed = made.saliency[0][made.decision[0] == 0]
        assert len(closed.unique()) == len(closed) and bool((closed < WIDTH).all()) and bool((closed > 0).any())


def test_both_ends_are_drawn_often_and_the_same_step_draws_the_same() -> None:
    drawn = [drawn_share(0.2, 0.6, step) for step in range(4000)]
    assert drawn == [drawn_share(0.2, 0.6, step) for step in range(4000)]
    assert drawn.count(0.2) / 4000 == pytest.approx(0.35, abs=0.03)
    assert drawn.count(0.6) / 4000 == pytest.approx(0.25, abs=0.03)
    between = [share for share in drawn if 0.2 < share < 0.6]
    assert min(between) < 0.21 and max(between) > 0.59 and sum(between) / len(between) < 0.38


def test_batch_norms_stay_while_the_range_is_trained(small_net: nn.Module, squares_loader: Batches) -> None:
    gated = sanp.gate(pretrained(small_net, squares_loader), squares_loader[0][0])
    stages = fit_stages(gated, Task(loader=squares_loader, budget="25%..60%", config=QUICK))
    for _ in next(stages).run():
        pass
    norm = gated.layers["features.3"].norm
    assert norm is not None
    seen = [norm.running_mean.clone() for _ in next(stages).run()]  # type: ignore[operator, union-attr]
    moved = [not torch.equal(*pair) for pair in itertools.pairwise(seen)]
    assert all(moved[: len(moved) // 2 - 1]) and not any(moved[-len(moved) // 4 :])


def test_a_loop_of_ones_own(small_net: nn.Module, squares_loader: Batches, squares_test: Batches) -> None:
    gated = sanp.gate(pretrained(small_net, squares_loader), squares_loader[0][0]).train()
    steps = 20 * len(squares_loader)
    optimizer = torch.optim.Adam(gated.parameter_groups(lr=3e-4, steps=steps))
    budget = sanp.Budget(gated, "25%..60%", steps=steps)
    for _ in range(20):
        for x, y in squares_loader:
            with sanp.record(gated) as gates:
                loss = nn.functional.cross_entropy(gated(x), y)
            (loss + budget.loss(gates)).backward()
            optimizer.step()
            optimizer.zero_grad()
    gated.set_budget("25%..60%", torch.cat([x for x, _ in squares_loader]))
    for share in ("25%", "60%"):
        gated.set_budget(share)
        report = sanp.evaluate(gated, squares_test)
        assert report.accuracy > 0.9 and report.kept == pytest.approx(gated.kept_for(share), abs=0.03)


def test_a_stopped_range_goes_on_as_if_nothing_had_been(ranged: sanp.GatedNetwork, squares_loader: Batches) -> None:
    networks = [ranged.train(), copy.deepcopy(ranged)]
    budgets = [sanp.Budget(network, "25%..60%", steps=100) for network in networks]
    for _ in range(5):
        with sanp.record(ranged) as gates:
            ranged(squares_loader[0][0])
        budgets[0].loss(gates)
    networks[1].load_state_dict(ranged.state_dict())
    budgets[1].restore(budgets[0].state())
    assert budgets[0].range is not None and budgets[0].range.begun
    norms = [module for module in networks[1].modules() if isinstance(module, nn.BatchNorm2d)]
    assert not any(norm.training for norm in norms)
    for network, budget in zip(networks, budgets, strict=True):
        torch.manual_seed(1)  # of the noise
        with sanp.record(network) as gates:
            network(squares_loader[1][0])
        budget.loss(gates)
    assert budgets[1].state() == budgets[0].state()
    assert networks[1].layers["features.3"].spm.threshold == ranged.layers["features.3"].spm.threshold


def test_what_cannot_be_trained_for_a_range_says_so(small_net: nn.Module, squares_loader: Batches) -> None:
    bare = sanp.gate(small_net, squares_loader[0][0], spm=sanp.SPMConfig(bias=None, start=1.0))
    with pytest.raises(sanp.SanpError, match="saliencies with a bias"):
        sanp.Budget(bare, "25%..60%")
    gated = sanp.gate(small_net, squares_loader[0][0])
    with pytest.raises(sanp.SanpError, match="does not rise"):
        sanp.fit(gated, squares_loader, "60%..25%")
    with pytest.raises(sanp.SanpError, match="cannot be read"):
        sanp.fit(gated, squares_loader, "25%..much")
    with pytest.raises(sanp.SanpError, match="is a range"):
        gated.kept_for("25%..60%")
