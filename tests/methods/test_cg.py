from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import sanp
from sanp.backbones import build
from sanp.core.errors import SanpError
from sanp.experiments.recipe import make_recipe, read_recipe
from sanp.methods.cg import CG, CGConfig, base_kept
from sanp.methods.parts.network_forms import rebuild
from sanp.methods.parts.pixel_gate import PixelGate, PixelGatedNetwork, base_mask, gateable
from sanp.spm.recording import record
from sanp.training.config import FitConfig
from sanp.training.task import Task
from sanp.training.watching import run_stages
from tests.methods.conftest import Residual, task
from tests.networks.strangers import STRANGERS

RECIPES = Path(__file__).parents[2] / "recipes"


def pixel_gate() -> PixelGate:
    """4 > 1 by 1x1; the base path is the first channel."""
    conv = nn.Conv2d(4, 1, 1)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([1.0, 10.0, 20.0, 30.0]).view(1, 4, 1, 1))
        conv.bias.fill_(0.5)
    return PixelGate("conv", conv, groups=4).eval()


def test_a_pixel_is_completed_where_its_partial_sum_is_above_the_threshold() -> None:
    gate = pixel_gate()
    gate.target.fill_(1.0)
    x = torch.ones(1, 4, 1, 3)
    x[0, 0, 0] = torch.tensor([0.0, 0.4, 2.0])  # partial sums 0.5, 0.9 and 2.5; the norm has mean 0 and deviation 1
    assert gate(x).flatten().tolist() == pytest.approx([0.5, 0.9, 2.5 + 60])
    with torch.no_grad():
        gate.offset.fill_(-0.2)  # δ = 0.8
    assert gate(x).flatten().tolist() == pytest.approx([0.5, 60.9, 62.5])


def test_the_gradient_goes_through_the_sigmoid() -> None:
    gate = pixel_gate()
    gate(torch.ones(1, 4, 1, 1)).sum().backward()
    # d out / d offset = rest · σ'(2 (1.5 - 0)) · (-2), with the norm's eps of 1e-5
    slope = torch.sigmoid(torch.tensor(3.0)) * (1 - torch.sigmoid(torch.tensor(3.0)))
    assert gate.offset.grad is not None
    assert gate.offset.grad.item() == pytest.approx(60 * slope.item() * -2, rel=1e-3)


def test_the_count_is_the_base_path_and_the_pixels_that_are_on() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.Linear(8, 3))
    network = PixelGatedNetwork(net, torch.zeros(1, 1, 2, 2), groups=4)
    on = {"1": torch.tensor([[1.0, 0.25], [0.0, 0.0]])}
    # First: 4 positions (1 + 1) 4 = 32. Second: 4 (1 + 1) 2 = 16 always, and 4 · 3 · (1 + 0.25) = 15 where on.
    assert network.cost.per_sample(on).tolist() == [32 + 16 + 15, 32 + 16]
    assert network.cost.dense_flops == 32 + 4 * (4 + 1) * 2
    assert base_kept(network) == pytest.approx(48 / 72)
    assert network.overhead_flops == 4 * 2


def test_the_report_gives_each_image_its_own_cost() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in (*net[0].parameters(), *net[1].parameters()):
            parameter.copy_(torch.randn_like(parameter)).mul_(1 if parameter.dim() > 1 else 0.1)
    network = PixelGatedNetwork(net, torch.zeros(1, 1, 2, 2), groups=4).eval()
    x = 5 * torch.randn(20, 1, 2, 2)
    report = sanp.evaluate(network, [(x, torch.arange(20) % 3)])
    pixels, conv = net[0](x), network.gates[0].conv
    weight, bias = (tensor.detach() for tensor in conv.parameters())
    partial = torch.einsum("nchw,oc->nohw", pixels[:, :1], weight[:, :1, 0, 0]) + bias[:, None, None]
    by_hand = 48 + 3 * (partial > 0).sum((1, 2, 3)).double()  # a pixel that is on costs 3 more
    assert report.per_sample.tolist() == by_hand.tolist()
    assert len(set(report.per_sample)) > 1


def test_the_first_convolution_and_1x1_shortcuts_are_not_gated() -> None:
    assert gateable(Residual(), torch.zeros(1, 3, 8, 8), 4) == ["inner", "outer", "down"]


def test_a_budget_below_the_base_path_is_an_error_before_training() -> None:
    with pytest.raises(SanpError, match="that cg can come to"):
        next(CG().stages(Residual(), task("20%")))


@pytest.mark.parametrize("name", sorted(STRANGERS))
def test_with_every_gate_on_a_network_of_any_style_is_what_it_was(name: str) -> None:
    make, example = STRANGERS[name]
    if not isinstance(example, torch.Tensor):
        pytest.skip("a loader gives one tensor")
    torch.manual_seed(0)
    net = make().eval()
    before = tree_leaves(net(example))
    try:
        network = PixelGatedNetwork(net, example, groups=2)
    except SanpError as refused:
        assert "no convolution that channel gating can split" in str(refused)
        return
    network.set_target(-1e9)
    with record(network) as gates:
        after = tree_leaves(network(example))
    for wanted, found in zip(before, after, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    decisions = {name: gate.decision.double() for name, gate in gates.items()}
    assert network.cost.per_sample(decisions).unique().tolist() == [network.cost.dense_flops]


def test_the_base_path_of_an_output_block_is_the_input_block_of_the_same_number() -> None:
    plain = base_mask(4, 2, 2, grouped=False, shuffle=False)
    grouped = base_mask(4, 2, 2, grouped=True, shuffle=False)
    shuffled = base_mask(4, 2, 2, grouped=True, shuffle=True)
    assert plain.int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0]]
    assert grouped.int().tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    # Dealt out, the inputs are 0 2 | 1 3: every block has one channel of each old block.
    assert shuffled.int().tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]
    # 5 inputs in 2 blocks are 3 and 2; dealt out 0 3 1 | 4 2. 3 outputs are 2 and 1.
    uneven = base_mask(5, 3, 2, grouped=True, shuffle=True)
    assert uneven.int().tolist() == [[1, 1, 0, 1, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 1]]


@pytest.mark.parametrize("shuffle, partial", [(False, [1 + 2, 30 + 40]), (True, [1 + 3, 20 + 40])])
def test_grouped_outputs_start_from_their_own_block(shuffle: bool, partial: list[float]) -> None:
    conv = nn.Conv2d(4, 2, 1, bias=False)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([[1.0, 2, 3, 4], [10, 20, 30, 40]]).view(2, 4, 1, 1))
    gate = PixelGate("conv", conv, 2, grouped=True, shuffle=shuffle).eval()
    x = torch.ones(1, 4, 1, 1)
    gate.target.fill_(1e6)
    assert gate(x).flatten().tolist() == pytest.approx(partial)
    gate.target.fill_(-1e6)
    assert gate(x).flatten().tolist() == pytest.approx([10, 100])


@pytest.mark.parametrize("channels", [(8, 12), (7, 10)])
def test_blocks_of_equal_and_of_unequal_size_are_both_a_masked_convolution(channels: tuple[int, int]) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(*channels, 3, stride=2, padding=1)
    gate = PixelGate("conv", conv, 4, grouped=True, shuffle=True).eval()
    gate.target.fill_(1e6)
    x = torch.randn(2, channels[0], 6, 6)
    wanted = nn.functional.conv2d(x, conv.weight * gate.mask[:, :, None, None], conv.bias, 2, 1)
    torch.testing.assert_close(gate(x), wanted, rtol=1e-5, atol=1e-5)


def test_uneven_blocks_are_counted_output_by_output() -> None:
    net = nn.Sequential(nn.Conv2d(1, 5, 1), nn.Conv2d(5, 3, 1), nn.Flatten(), nn.Linear(3, 3))
    network = PixelGatedNetwork(net, torch.zeros(1, 1, 1, 1), groups=2, grouped=True)
    # Outputs 0 and 1 have 3 inputs in the base path and 2 more, output 2 has 2 and 3 more; 3 biases; the first is 10.
    on = {"1": torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.0, 1.0]])}
    assert network.cost.per_sample(on).tolist() == [10 + 3 + 3 + 2 + 3, 10 + 11 + 0.5 * 2 + 3]


def test_a_convolution_before_an_addition_is_gated_only_on_request_or_if_the_budget_needs_it() -> None:
    example = torch.zeros(1, 3, 8, 8)
    assert gateable(Residual(), example, 4, gate_all=False) == ["inner"]
    # The FLOPs of stem, inner, outer, down, shortcut are 28672, 148480, 148480, 74240, 8704: 408576 in all. Without
    # the three quarters of inner's 9 · 16 inputs, 110592, 72.9 % are left.
    paths = {}
    for budget in ("73%", "72%"):
        network = CG()._network(Residual(), task(budget))[0]
        paths[budget] = list(network.cost.base)
    assert paths == {"73%": ["inner"], "72%": ["inner", "outer", "down"]}
    with pytest.raises(SanpError, match=r"below the 72.9% that cg can come to"):
        CG(config=CGConfig(gate_all=False)).check(Residual(), task("72%"))


def test_at_its_floor_every_gate_is_off_and_a_hair_below_it_is_refused() -> None:
    # One input channel of four is the base path: 4 positions (1 + 1) 4 = 32 and 4 (1 + 1) 2 = 16 of 32 + 40 FLOPs.
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    loader = [(torch.randn(16, 1, 2, 2), torch.zeros(16, dtype=torch.long)) for _ in range(2)]
    still = FitConfig(warmup_epochs=0, joint_epochs=0, norm_batches=1, precision="fp32")
    given = Task(loader=loader, budget=repr(48 / 72), config=still)
    pruned = run_stages(CG().stages(net, given))
    assert sanp.evaluate(pruned, loader).kept == pytest.approx(48 / 72)
    with pytest.raises(SanpError, match=r"below the 66.7% that cg can come to"):
        CG().check(net, replace(given, budget="66.6%"))


def test_thresholds_have_no_weight_decay() -> None:
    network = PixelGatedNetwork(Residual(), torch.zeros(1, 3, 8, 8), 4)
    for decay, wanted in ((False, 0.0), (True, 5e-4)):
        others, thresholds = CG(config=CGConfig(decay=decay))._optimizers(network, FitConfig())
        (group,) = thresholds.optimizer.param_groups
        assert group["weight_decay"] == wanted
        assert [id(parameter) for parameter in group["params"]] == [id(gate.offset) for gate in network.gates]
        assert others.optimizer.param_groups[0]["weight_decay"] == 5e-4
        count = sum(len(each.optimizer.param_groups[0]["params"]) for each in (others, thresholds))
        assert count == len(list(network.parameters()))


def test_the_recipe_at_25_percent_can_be_met_with_8_groups() -> None:
    recipe = make_recipe(read_recipe(RECIPES / "methods" / "m_cifarnet-cg.toml"))
    loader = [(torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.long))]
    recipe.pruning_method().check(
        build("m_cifarnet", num_classes=10), Task(loader=loader, budget=recipe.budget, config=recipe.fit)
    )
    network = CG(config=CGConfig(groups=8))._network(
        build("m_cifarnet", num_classes=10), Task(loader=loader, budget="25%")
    )[0]
    assert base_kept(network) == pytest.approx(0.134, abs=5e-4)


def test_a_file_of_an_older_version_has_the_first_inputs_as_the_base_path(tmp_path: Path) -> None:
    form = {"kind": "pixels", "method": "cg", "groups": 4, "input_shape": [1, 3, 8, 8]}
    network = rebuild(Residual(), form, torch.zeros(1, 3, 8, 8))
    assert isinstance(network, PixelGatedNetwork)
    assert [gate.name for gate in network.gates] == ["inner", "outer", "down"]
    assert network.gates[0].mask[0].int().tolist() == [1] * 4 + [0] * 12
    with pytest.raises(SanpError, match="grouped 'yes': it must be true or false"):
        rebuild(Residual(), {**form, "grouped": "yes"}, torch.zeros(1, 3, 8, 8))
