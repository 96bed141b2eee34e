import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.backbones import BACKBONES
from sanp.core.errors import SanpError
from sanp.gating.count import ungated_cost
from sanp.methods.cutting.cut import CutNetwork, cut, masked
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.ranking import with_survivors
from tests.methods.conftest import Residual
from tests.methods.cutting.test_find_groups import Squeezed
from tests.networks.strangers import STRANGERS


def scrambled(net: nn.Module) -> nn.Module:
    """Batch norms with statistics, scales and shifts that matter."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return net.eval()


def half_gone(net: nn.Module, image: Tensor) -> tuple[CutNetwork, nn.Module]:
    channel_groups = find_groups(net, image)
    groups = {
        int(group)
        for path in channel_groups.convs
        for group in channel_groups.groups_of(channel_groups.members[path].outputs)
    } - {0}
    generator = torch.Generator().manual_seed(1)
    removed = {group for group in sorted(groups) if torch.rand((), generator=generator) < 0.5}
    return cut(net, channel_groups, removed, image, method="l1"), masked(net, channel_groups, removed)


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_a_cut_backbone_equals_the_masked_one_and_is_smaller(name: str) -> None:
    if name not in ("m_cifarnet", "vgg19", "resnet18"):
        pytest.skip("not one of the paper's")
    net = scrambled(BACKBONES[name](num_classes=10))
    smaller, full = half_gone(net, torch.randn(1, 3, 32, 32))
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        wanted = full(x)
        torch.testing.assert_close(smaller(x), wanted, rtol=0, atol=1e-5 * max(1, wanted.abs().max().item()))
    parameters = [sum(p.numel() for p in each.parameters()) for each in (smaller, net)]
    assert parameters[0] < 0.4 * parameters[1]
    assert smaller.cost.dense_flops == ungated_cost(net, x[:1]).dense_flops
    assert float(smaller.cost.per_sample({})) == ungated_cost(smaller.net, x[:1]).dense_flops


@pytest.mark.parametrize("make", [Residual, Squeezed])
def test_shortcuts_squeezes_depthwise_and_flattened_layers_are_cut(make: type[nn.Module]) -> None:
    torch.manual_seed(3)
    net = scrambled(make())
    x = torch.randn(5, 3, 8, 8)
    smaller, full = half_gone(net, x[:1])
    with torch.no_grad():
        torch.testing.assert_close(smaller(x), full(x), rtol=0, atol=1e-5)
        assert not torch.allclose(full(x), net(x), atol=1e-3)


def test_the_report_counts_the_smaller_network_against_the_whole() -> None:
    net = scrambled(Residual(width=4))
    channel_groups = find_groups(net, torch.zeros(1, 3, 8, 8))
    inner = channel_groups.groups_of(channel_groups.members["inner"].outputs).tolist()
    smaller = cut(net, channel_groups, set(inner[:3]), torch.zeros(1, 3, 8, 8), method="ns")
    report = sanp.evaluate(smaller, [(torch.randn(6, 3, 8, 8), torch.arange(6) % 4)])
    layers = {layer.name: layer for layer in report.layers}
    assert (layers["inner"].never, layers["inner"].sometimes, layers["inner"].always) == (1, 0, 3)
    assert layers["inner"].flops == 64 * (4 * 9 + 1) * 1
    assert layers["outer"].flops == 64 * (1 * 9 + 1) * 4
    assert layers["outer"].dense_flops == 64 * (4 * 9 + 1) * 4
    assert report.per_sample.tolist() == [report.flops] * 6
    assert report.dense_flops == ungated_cost(net, torch.zeros(1, 3, 8, 8)).dense_flops


def test_a_forward_that_counts_on_its_channels_is_refused() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 1, bias=False), nn.Conv2d(8, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            y: Tensor = self.b(x * x.shape[1]).mean((2, 3))  # the number of channels itself
            return y

    net, image = Counting(), torch.randn(1, 3, 4, 4)
    channel_groups = find_groups(net, image)
    with pytest.raises(SanpError, match="gives something else with fewer channels"):
        cut(
            net,
            channel_groups,
            {int(channel_groups.groups_of(channel_groups.members["a"].outputs)[0])},
            image,
            method="l1",
        )


@pytest.mark.parametrize("name", sorted(STRANGERS))
def test_a_network_of_any_style_is_cut_soundly_or_left_whole(name: str) -> None:
    make, example = STRANGERS[name]
    net = make().eval()
    channel_groups = find_groups(net, example)
    groups = {
        int(group)
        for path in channel_groups.convs
        for group in channel_groups.groups_of(channel_groups.members[path].outputs)
    } - {0}
    removed = with_survivors(channel_groups, {group for group in groups if group % 2}, dict.fromkeys(groups, 0.0))
    smaller = cut(net, channel_groups, removed, example, method="l1")  # compares itself with the masked network
    assert channel_groups.flops(set()) == smaller.cost.dense_flops
    assert channel_groups.flops(removed) == smaller.cost.per_sample({}).item()
    assert bool(removed) == (channel_groups.flops(removed) < channel_groups.flops(set()))


def test_common_networks_have_channels_to_cut() -> None:
    found = {}
    for name in ("activations that keep zero", "squeeze and excitation", "several arguments", "one dimension"):
        make, example = STRANGERS[name]
        channel_groups = find_groups(make().eval(), example)
        found[name] = any(bool(channel_groups.removable(path).any()) for path in channel_groups.convs)
    assert all(found.values()), found
