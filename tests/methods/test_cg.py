import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import sanp
from sanp.core.errors import SanpError
from sanp.methods.cg import CG, base_kept
from sanp.methods.parts.pixel_gate import PixelGate, PixelGatedNetwork, gateable
from sanp.spm.recording import record
from tests.methods.conftest import Residual, task
from tests.networks.strangers import STRANGERS


def pixel_gate() -> PixelGate:
    """4 > 1 by 1x1; the base path is the first channel."""
    conv = nn.Conv2d(4, 1, 1)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([1.0, 10.0, 20.0, 30.0]).view(1, 4, 1, 1))
        conv.bias.fill_(0.5)
    return PixelGate("conv", conv, 1).eval()


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
