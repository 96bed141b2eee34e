"""Linear layers over the channels of maps: gated and counted as the 1x1 convolutions that they are."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.gating.count import ungated_cost
from sanp.gating.gating import planned_cost
from sanp.gating.pointwise import PointwiseLinear

X = torch.randn(3, 3, 6, 5, generator=torch.Generator().manual_seed(0))


class Mixer(nn.Module):
    """A convolution, two linear layers over its channels, and one over the pooled features."""

    def __init__(self, middle: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.expand, self.project = middle or nn.Linear(8, 16), nn.Linear(16, 4, bias=False)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).permute(0, 2, 3, 1)
        y = self.project(torch.relu(self.expand(y)))
        out: Tensor = self.head(y.mean((1, 2)))
        return out


def test_a_pointwise_linear_layer_computes_what_the_linear_layer_does() -> None:
    linear = nn.Linear(5, 7)
    x = torch.randn(2, 4, 3, 5)
    torch.testing.assert_close(PointwiseLinear(linear)(x), linear(x))


def test_linear_layers_over_channels_get_gates_and_count_and_those_over_features_do_not() -> None:
    net = Mixer()
    gated = sanp.gate(net, X)
    pixels = 6 * 5
    by_hand = pixels * (3 * 9 + 1) * 8 + pixels * (8 + 1) * 16 + pixels * (16 + 1) * 4
    assert list(gated.cost.gates) == ["conv", "expand.conv", "project.conv"]
    assert gated.dense_flops == ungated_cost(net, X).dense_flops == planned_cost(net, X).dense_flops == by_hand
    assert planned_cost(net, X).floor_flops == gated.cost.floor_flops == pixels * (28 + 2 + 2)
    torch.testing.assert_close(gated.eval()(X), net.eval()(X))
    assert isinstance(net.expand, nn.Linear), "the network itself is not changed"


def test_skip_takes_the_name_of_the_linear_layer() -> None:
    gated = sanp.gate(Mixer(), X, skip=["expand"])
    assert gated.skipped == {"expand.conv": "named in skip"}
    assert "project.conv" in gated.cost.gates


def test_a_gated_one_is_saved_loaded_and_compiled(tmp_path: Path) -> None:
    torch.manual_seed(0)
    gated = sanp.gate(Mixer(), X).eval()
    gated.set_budget("50%", X)
    sanp.save(gated, tmp_path / "mixer.safetensors")
    loaded = sanp.load(tmp_path / "mixer.safetensors", Mixer()).eval()
    torch.testing.assert_close(loaded(X), gated(X))
    fast = sanp.compile(loaded, X)
    assert fast.plan.native
    torch.testing.assert_close(fast(X), gated(X))


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def hooked() -> nn.Module:
    linear = nn.Linear(8, 16)
    linear.register_forward_hook(lambda module, given, out: 3 * out)
    return linear


def normed() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(8, 16))


@pytest.mark.parametrize("middle", [lambda: Doubled(8, 16), hooked, normed])
def test_what_is_more_than_a_linear_layer_stays_as_it_is(middle: Callable[[], nn.Module]) -> None:
    net = Mixer(middle()).eval()
    gated = sanp.gate(net, X).eval()
    assert not isinstance(gated.net.expand, PointwiseLinear)
    torch.testing.assert_close(gated(X), net(X))
    assert gated.dense_flops == ungated_cost(net, X).dense_flops == planned_cost(net, X).dense_flops
    sanp.testing.check_network(lambda: Mixer(middle()), X)


def test_shared_weights_stay_shared() -> None:
    net = Mixer(nn.Linear(8, 8))
    net.project = nn.Linear(8, 8, bias=False)
    net.project.weight = net.expand.weight
    net.head = nn.Linear(8, 2)
    gated = sanp.gate(net, X)
    assert gated.net.project.weight is gated.net.expand.weight
    assert list(gated.cost.gates) == ["conv"]


def test_a_layer_that_is_called_on_maps_and_on_features_stays_as_it_is() -> None:
    class Both(Mixer):
        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x).permute(0, 2, 3, 1)
            out: Tensor = self.expand(y).mean((1, 2)) + self.expand(y.mean((1, 2)))
            return out

    net = Both().eval()
    gated = sanp.gate(net, X).eval()
    assert list(gated.cost.gates) == ["conv"]
    torch.testing.assert_close(gated(X), net(X))


def test_one_layer_under_two_names_is_replaced_under_both() -> None:
    net = Mixer()
    net.again = net.expand
    gated = sanp.gate(net, X)
    assert gated.net.again is gated.net.expand
    assert "expand.conv" in gated.cost.gates


def test_the_battery_passes() -> None:
    report = sanp.testing.check_network(Mixer, X)
    assert report.gated_share == 1.0
    assert report.native_share == 1.0
