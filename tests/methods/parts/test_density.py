import pytest
import torch
from torch import nn

from sanp.methods import METHODS
from sanp.methods.fbs import FBS, BoostingSaliency, FBSConfig
from sanp.methods.fixed_k import FixedK
from sanp.methods.parts.density import kept_at_density, set_density, winners
from sanp.methods.parts.gating_method import GatingMethod
from sanp.spm.module import SPMConfig
from sanp.spm.recording import record
from sanp.spm.top_k import TopK
from tests.conftest import SmallNet, TwoConvs


def test_among_equals_exactly_k_win() -> None:
    take = TopK(4)
    take.density = 0.5
    saliency = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 3.0, 2.0, 1.0], [2.0, 2.0, 2.0, 5.0]])
    won = take(saliency)
    assert won.sum(1).tolist() == [2, 2, 2]
    assert won[1].tolist() == [0, 1, 1, 0]
    assert won[2, 3] == 1


def test_fixed_k_rounds_and_fbs_rounds_up() -> None:
    assert [TopK(10).count(density) for density in (0.0, 0.24, 0.26, 1.0)] == [1, 2, 3, 10]
    assert [TopK(10, round_up=True).count(density) for density in (0.0, 0.21, 0.3, 1.0)] == [1, 3, 3, 10]


def test_the_number_of_winners_is_part_of_the_state() -> None:
    take, other = TopK(8), TopK(8)
    take.density = 0.375
    other.load_state_dict(take.state_dict())
    assert (int(other.kept), other.density) == (3, 0.375)


def test_a_density_costs_its_square_in_a_chain() -> None:
    gated = FixedK().gate(SmallNet(), torch.zeros(1, 3, 8, 8), spm=SPMConfig())
    saliencies = {name: torch.rand(5, 16) for name in gated.cost.gates}
    # 64 positions 3 > 8; 16 positions 8 > 8 twice
    by_hand = 64 * (3 * 9 + 1) * 8 + 2 * 16 * (8 * 9 + 1) * 8
    assert kept_at_density(gated, saliencies, 0.5) == pytest.approx(by_hand / gated.dense_flops)
    set_density(gated, 0.5)
    assert [each.density for each in winners(gated).values()] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("method", [FixedK(), FBS()])
def test_calibration_sets_the_density(method: GatingMethod) -> None:
    gated = method.gate(SmallNet(), torch.zeros(1, 3, 8, 8), spm=SPMConfig())
    images = torch.randn(20, 3, 8, 8)
    for share, kept in ((0.3, 8), (0.8, 14), (0.1, 4), (1.0, 16)):
        # k winners of 16 in three layers: 64 positions 3 > k, then twice 16 positions k > k
        costs = {k: 64 * (3 * 9 + 1) * k + 2 * 16 * (k * 9 + 1) * k for k in range(1, 17)}
        assert min(costs, key=lambda k: abs(costs[k] / costs[16] - share)) == kept
        assert gated.set_budget(share, images) == pytest.approx(costs[kept] / costs[16])
        assert [int(each.kept) for each in winners(gated).values()] == [kept] * 3
        assert all(layer.spm.threshold == 0 for layer in gated.layers.values())


def test_a_group_that_does_not_divide_the_channels_is_their_common_divisor_in_every_method() -> None:
    for name in ("sanp", "static", "fixed_k"):
        gated = METHODS[name].gate(SmallNet(), torch.zeros(1, 3, 8, 8), spm=SPMConfig(group=12))  # type: ignore[attr-defined]
        assert {layer.spm.group for layer in gated.layers.values()} == {4}  # of 16 channels


def test_fixed_k_still_scales_by_the_saliency() -> None:
    gated = FixedK().gate(SmallNet(), torch.zeros(1, 3, 8, 8), spm=SPMConfig()).eval()
    name, layer = next(iter(gated.layers.items()))
    with torch.no_grad():
        layer.spm.saliency.w2.bias.copy_(torch.arange(16) / 4)  # type: ignore[union-attr, operator]
    set_density(gated, 0.25)
    x = torch.randn(2, 3, 8, 8)
    with record(gated) as gates:
        gated(x)
    assert gates[name].decision.tolist() == [[0.0] * 12 + [1.0] * 4] * 2
    out = layer(x)
    torch.testing.assert_close(out[:, 15], 3.75 * layer.features(x)[:, 15])
    assert not out[:, :12].any()


def test_fbs_predicts_from_the_mean_of_absolute_inputs() -> None:
    predict = BoostingSaliency(2, 2)
    with torch.no_grad():
        predict.phi.weight.copy_(torch.tensor([[1.0, -1.0], [0.5, 2.0]]))
        predict.phi.bias.copy_(torch.tensor([1.0, -9.0]))
    x = torch.tensor([[[[-1.0, 3.0]], [[4.0, 0.0]]]])  # means of absolute values: 2 and 2
    # relu(2 - 2 + 1) = 1; relu(1 + 4 - 9) = 0
    assert predict(x).tolist() == [[1.0, 0.0]]
    fresh = BoostingSaliency(64, 32)
    assert fresh.phi.bias.tolist() == [1.0] * 32
    assert fresh.phi.weight.std().item() == pytest.approx(0.05, rel=0.1)


def test_fbs_keeps_the_trained_scale_and_does_not_train_it() -> None:
    net = TwoConvs()
    nn.init.uniform_(net.norm.weight, 0.5, 2)
    gated = FBS().gate(net, torch.zeros(1, 3, 4, 4), spm=SPMConfig())
    norm = gated.layers["first"].norm
    assert isinstance(norm, nn.BatchNorm2d)
    assert torch.equal(norm.weight, net.norm.weight) and not norm.weight.requires_grad and norm.bias.requires_grad


def test_fbs_goes_down_a_tenth_of_density_at_a_time() -> None:
    config = FBSConfig(falling=0.5)
    # A budget of 0.49 is a density of 0.7: three rungs, 0.9, 0.8 and 0.7, over the first half of the steps.
    targets = [config.target_at(0.49, progress) for progress in (0.0, 0.16, 0.17, 0.33, 0.34, 0.5, 1.0)]
    assert targets == pytest.approx([0.81, 0.81, 0.64, 0.64, 0.49, 0.49, 0.49])
