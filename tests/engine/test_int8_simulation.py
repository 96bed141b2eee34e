"""Whole int8 networks against their simulation in torch, and layers that stay in fp32 because int8 loses too much."""

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.int8_calibration import kept_calibration
from sanp.engine import building
from sanp.engine.library import Unavailable, native_library
from sanp.engine.quantise.loss import loss_of
from sanp.engine.quantise.rewriting import Rewritten, rewritten
from tests.engine.networks import EXAMPLES, conv_bn, gated_network, trained_like
from tests.tools.byte_simulation import Simulation

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


class Bottleneck(nn.Module):
    """Inverted residuals with linear ends, which are negative too: the style of MobileNetV2."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 12, stride=2), nn.ReLU6(), *conv_bn(12, 10, kernel=1))
        self.first = self.block(10, 30)
        self.second = self.block(10, 22)
        self.head = nn.Sequential(*conv_bn(10, 20, kernel=1), nn.ReLU6())
        self.linear = nn.Linear(20, 6)

    def block(self, channels: int, width: int) -> nn.Sequential:
        return nn.Sequential(
            *conv_bn(channels, width, kernel=1), nn.ReLU6(), *conv_bn(width, width, groups=width), nn.ReLU6(),
            *conv_bn(width, channels, kernel=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.first(x)
        x = x + self.second(x)
        return self.linear(self.head(x).mean((2, 3)))


STYLES = {**EXAMPLES, "bottleneck": (Bottleneck, (3, 20, 20))}
NATIVE = [name for name in STYLES if name != "dilated"]  # that one runs in torch in places


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Rewritten]:
    """The programs on bytes that are made, in order."""
    made: list[Rewritten] = []

    def noted(*args: object) -> Rewritten:
        made.append(rewritten(*args))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(building, "rewritten", noted)
    return made


@pytest.mark.parametrize("gated", [False, True], ids=["dense", "gated"])
@pytest.mark.parametrize("name", NATIVE)
def test_an_int8_network_is_its_simulation_in_torch(name: str, gated: bool, programs: list[Rewritten]) -> None:
    kind, shape = STYLES[name]
    torch.manual_seed(0)
    x = torch.randn(40, *shape, generator=torch.Generator().manual_seed(2))
    net = trained_like(kind(), shape)
    if gated:
        net = gated_network(net, x[:2])
    fast = sanp.compile(net, x[:2], tune=False, precision="int8", calibration=x)
    found = fast.run_recorded(x[:8])
    assert found is not None
    (given,), decided = found
    simulation = Simulation(programs[-1].writer, [x[:8]], list(decided.values()))
    (wanted,) = (each.reshape(given.shape) for each in simulation.outputs)
    with torch.no_grad():
        fp32 = net(x[:8])
    # What is in fp32 rounds otherwise, which moves a byte by one step once in thousands of times.
    assert float((given - wanted).square().mean().sqrt()) < 0.1 * float((given - fp32).square().mean().sqrt())
    assert simulation.largest_sum < 2**31


@pytest.mark.parametrize("gated", [False, True], ids=["dense", "gated"])
def test_all_but_the_first_layer_of_a_mobile_network_is_in_int8(gated: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 3, 20, 20, generator=torch.Generator().manual_seed(2))
    net = trained_like(Bottleneck(), (3, 20, 20))
    if gated:
        net = gated_network(net, x[:2])
    fast = sanp.compile(net, x[:2], tune=False, precision="int8", calibration=x)
    rows = [row for row in fast.plan if row.flops and row.how != "linear"]
    kept = kept_calibration(net)
    assert kept is not None
    assert rows[0].why == "the first layer stays in fp32"
    assert len(kept.errors) == len(rows) - 1 == 8
    assert all(row.how == "int8 direct" or "int8 changes its output" in row.why for row in rows[1:])
    assert len(kept.fp32) <= (2 if gated else 0)
    assert sum(low < 0 for low, _ in kept.ranges.values()) == 3  # the linear ends of the stem and of both blocks
    assert loss_of(fast, net, x[:32]).small


class Outlier(nn.Module):
    """One channel of the second layer's input is a thousand times the others, and its weights are nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.third = nn.Conv2d(8, 4, 3, padding=1)
        nn.init.constant_(self.first.bias, 1.0)  # type: ignore[arg-type]
        self.first.bias.data[0] = 1000.0  # type: ignore[union-attr, index]
        self.second.weight.data[:, 0] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x).relu()).relu())


def test_a_layer_that_int8_changes_too_much_stays_in_fp32_and_the_plan_says_why() -> None:
    torch.manual_seed(0)
    net = Outlier().eval()
    x = torch.randn(32, 3, 12, 12)
    fast = sanp.compile(net, x[:2], tune=False, precision="int8", calibration=x)
    rows = {row.layer: row for row in fast.plan if row.flops}
    assert rows["second"].why.startswith("int8 changes its output by ")
    assert rows["third"].how == "int8 direct"
    kept = kept_calibration(net)
    assert kept is not None
    assert kept.fp32 == ("second",)
    assert kept.errors["second"] > 0.1 > 10 * kept.errors["third"] > 0
    again = sanp.compile(net, x[:2], tune=False, precision="int8")
    assert torch.equal(again(x), fast(x))


def test_what_int8_changes_of_a_layer_is_worked_out_by_hand(programs: list[Rewritten]) -> None:
    """The second layer of a chain on bytes of what it reads in fp32, beside fp32."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    x = torch.randn(32, 3, 10, 10)
    sanp.compile(net, x[:2], tune=False, precision="int8", calibration=x)
    kept = kept_calibration(net)
    assert kept is not None
    ((_, top),) = kept.ranges.values()
    with torch.no_grad():
        read, weight = net[1](net[0](x)), net[2].weight
        scale = weight.abs().amax((1, 2, 3), keepdim=True) / 127  # type: ignore[operator]
        int8 = nn.functional.conv2d(
            (read / (top / 255)).round().clamp(0, 255) * (top / 255),
            (weight / scale).round() * scale,  # type: ignore[operator]
            net[2].bias,  # type: ignore[arg-type]
        )
        y = net(x)
    spread = (y - y.mean((0, 2, 3), keepdim=True)).square().mean()
    assert kept.errors["2"] == pytest.approx(float(((int8 - y).square().mean() / spread).sqrt()), rel=0.02)
