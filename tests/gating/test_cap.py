"""The cap: no image costs more than max_flops, and the least salient channels are those that stay closed."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sanp
from sanp.core.modules import evaluating
from sanp.gating.amount import parse_budget
from sanp.gating.cap import Cap, make_cap
from sanp.gating.cost_bound import CostBound
from sanp.spm.binarize import keep_best
from sanp.spm.recording import decisions_of
from sanp.testing.nonzero_count import count
from tests.conftest import SmallNet
from tests.engine.networks import EXAMPLES, Residual, gated_network, trained_like
from tests.networks.parts import IMAGE, block, conv
from tests.networks.strangers import STRANGERS

NETWORKS = {"small": (SmallNet, (3, 16, 16)), **EXAMPLES}


def images_of(shape: tuple[int, ...], count: int = 64) -> torch.Tensor:
    """Images that differ in contrast, so that gates differ."""
    images = torch.randn(count, *shape, generator=torch.Generator().manual_seed(4))
    return images * torch.linspace(0.2, 4, count).reshape(-1, *[1] * len(shape))


IMAGES = images_of((3, 16, 16))


def varied(name: str = "small", **settings: object) -> sanp.GatedNetwork:
    """A network whose images differ in cost."""
    make, shape = NETWORKS[name]
    spm = sanp.SPMConfig(**settings)  # type: ignore[arg-type]
    return gated_network(trained_like(make(), shape), images_of(shape, 1), config=spm)


def costs(gated: sanp.GatedNetwork, images: torch.Tensor = IMAGES) -> torch.Tensor:
    """Of each image, as shares of the dense FLOPs."""
    with torch.no_grad(), evaluating(gated), sanp.record(gated) as gates:
        gated(images)
    decisions = {name: decision.double() for name, decision in decisions_of(gates).items()}
    return gated.cost.per_sample(decisions) / gated.dense_flops


@pytest.mark.parametrize("name", NETWORKS)
def test_no_image_costs_more(name: str) -> None:
    gated, images = varied(name), images_of(NETWORKS[name][1])
    free = costs(gated, images)
    least = CostBound(gated.cost)([np.int64(1)] * len(gated.cost.gates)) / gated.dense_flops
    assert float(free.max() - free.min()) > 0.02
    for share in (0.95, float(free.mean()), float(free.min()), (least + float(free.min())) / 2, float(least) + 1e-6):
        gated.set_max_flops(share, images)
        assert float(costs(gated, images).max()) <= share
        with torch.no_grad(), count(gated) as calls:
            gated(images)
        seen = torch.stack([call.flops() for call in calls]).sum(0)
        assert float(seen.max()) <= share * gated.dense_flops  # counted without knowing of gates
    gated.set_max_flops(None)
    assert torch.equal(costs(gated, images), free)


@pytest.mark.parametrize("group", [1, 4])
def test_the_most_salient_channels_stay_and_only_closing_happens(group: int) -> None:
    gated = varied(group=group)
    with torch.no_grad(), sanp.record(gated) as before:
        gated(IMAGES)
    gated.set_max_flops(float(costs(gated).mean()), IMAGES)
    with torch.no_grad(), sanp.record(gated) as after:
        gated(IMAGES)
    first = next(iter(after))  # deeper layers have other inputs than before
    spm, cut = gated.layers[first].spm, before[first].decision > after[first].decision
    assert bool(cut.any()) and bool((after[first].decision <= before[first].decision).all())
    assert bool((after[first].decision.sum(1) >= 1).all())
    score = spm.score(after[first]).repeat_interleave(group, 1)
    kept_lowest = torch.where(after[first].decision > 0, score, torch.inf).amin(1)
    cut_highest = torch.where(cut, score, -torch.inf).amax(1)
    assert bool((kept_lowest >= cut_highest).all())


def test_of_equal_scores_the_first_stay() -> None:
    decision = torch.tensor([[1.0, 1, 0, 1, 1], [1, 0, 0, 0, 0]])
    score = torch.tensor([[0.5, 0.7, 9.0, 0.5, 0.5], [-1.0, -2, -3, -4, -5]])
    assert keep_best(decision, score, torch.tensor([3, 1])).tolist() == [[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]]


def test_what_earlier_layers_leave_is_there_for_later_ones() -> None:
    """a: 3 > 8 and b: 8 > 8 on 8x8. With 2 channels of each, 64 · 28 · 2 + 64 · 19 · 2 = 6,016 FLOPs."""
    gated = sanp.gate(nn.Sequential(block(3, 8), conv(8, 8)), IMAGE)
    cap = Cap(parse_budget("6.016k"), 6016, {"0.0": 2, "1": 2}, CostBound(gated.cost))
    assert cap.allowed("0.0", {}, np.array([1, 2])) is None  # within the reserve
    # three channels of a would cost 64 · 28 · 3 + 64 · 28 · 2 = 8,960
    assert cap.allowed("0.0", {}, np.array([8, 1])).tolist() == [2, 1]  # type: ignore[union-attr]
    # with one of a, b has 6,016 - 1,792 = 4,224 FLOPs, and a channel costs 64 · 10: six
    assert cap.allowed("1", {"0.0": np.array([1, 2])}, np.array([8, 8])).tolist() == [6, 2]  # type: ignore[union-attr]


def test_reserves_are_in_the_proportions_of_what_layers_usually_open() -> None:
    gated = sanp.gate(nn.Sequential(block(3, 8), conv(8, 8)), IMAGE)
    cap = make_cap(gated, "10k", {"0.0": 2.0, "1": 4.0})
    # times 1.25: 2 and 5 channels cost 64 · 28 · 2 + 64 · 19 · 5 = 9,664; 3 and 6 cost 16,128
    assert cap.reserve == {"0.0": 2, "1": 5}
    assert make_cap(gated, 1.0, {"0.0": 2.0, "1": 4.0}).reserve == {"0.0": 8, "1": 8}


def test_a_layer_that_runs_twice_has_two_gates() -> None:
    make, example = STRANGERS["a module used twice"]
    gated, images = gated_network(make().eval(), example), images_of((3, 8, 8))
    middle = float(costs(gated, images).mean())
    gated.set_max_flops(middle, images)
    assert len(gated.cap.reserve) == 3 and float(costs(gated, images).max()) <= middle  # type: ignore[union-attr]


def test_thresholds_are_those_of_the_budget_and_the_mean_may_be_lower() -> None:
    gated = varied()
    capped = copy.deepcopy(gated)
    gated.set_budget(0.5, IMAGES)
    reached = capped.set_budget(0.5, IMAGES, max_flops=0.5)
    assert [layer.spm.level for layer in capped.layers.values()] == [layer.spm.level for layer in gated.layers.values()]
    assert reached == pytest.approx(float(costs(capped).mean())) and reached < 0.5 and float(costs(capped).max()) <= 0.5
    assert capped.set_budget(0.4, IMAGES) <= 0.4 and capped.cap is not None  # stays until it is taken away


def test_training_goes_on_without_the_cap() -> None:
    gated = varied()
    gated.set_max_flops(0.3, IMAGES)
    gated.train()
    with sanp.record(gated) as gates:
        gated(IMAGES)
    assert float(gated.cost.per_sample(decisions_of(gates)).max()) > 0.3 * gated.dense_flops


def test_fit_sets_it(squares_loader: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    images = squares_loader[0][0]
    gated = sanp.gate(SmallNet(), images[:1])
    config = sanp.FitConfig(warmup_epochs=0, joint_epochs=1, distill=0.0, precision="fp32")
    sanp.fit(gated, squares_loader, "50%", max_flops="55%", config=config, progress=False)
    assert gated.cap is not None and float(costs(gated.eval(), images).max()) <= 0.55
    with pytest.raises(sanp.SanpError, match=r"max_flops is 40.0% .* below the budget of 50.0%"):
        sanp.fit(gated, squares_loader, "50%", max_flops="40%", config=config, progress=False)


def test_the_printed_network_says_so() -> None:
    gated = varied()  # 411,648 FLOPs
    assert "max_flops" not in repr(gated)
    gated.set_max_flops("50%", IMAGES)
    assert "no image costs more than 205.8k FLOPs (max_flops)" in repr(gated).splitlines()


def test_files_keep_it(tmp_path: Path) -> None:
    gated, images = varied("residual"), images_of((3, 18, 22))
    gated.set_max_flops("45%", images)
    sanp.save(gated, tmp_path / "net.safetensors")
    loaded = sanp.load(tmp_path / "net.safetensors", Residual()).eval()
    assert isinstance(loaded, sanp.GatedNetwork) and loaded.cap is not None and gated.cap is not None
    assert loaded.cap.as_dict() == gated.cap.as_dict() and loaded.cap.limit == gated.cap.limit
    assert float(costs(loaded, images).max()) <= 0.45


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("1.2ms", "is a time"),
        ("1%", "give at least that"),
        (0.0, "not above zero"),
        (1.5, "more than the whole network"),
        ("much", "cannot be read"),
        (True, "is a bool"),
    ],
)
def test_a_cap_that_cannot_be_is_an_error_and_changes_nothing(given: object, said: str) -> None:
    gated = varied()
    with pytest.raises(sanp.SanpError, match=said):
        gated.set_max_flops(given)
    with pytest.raises(sanp.SanpError, match="max_flops"):
        gated.set_budget(0.5, IMAGES, max_flops=given)
    assert gated.cap is None


def test_without_images_all_layers_have_the_same_share_or_that_of_the_cap_before() -> None:
    gated = varied()
    gated.set_max_flops("30%")
    assert gated.cap is not None and len(set(gated.cap.reserve.values())) == 1
    gated.set_max_flops("30%", IMAGES)
    first = dict(gated.cap.reserve)
    gated.set_max_flops("30%")
    assert gated.cap.reserve.keys() == first.keys() and len(set(gated.cap.reserve.values())) > 1
