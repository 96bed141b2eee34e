"""int8 engines: what they give beside fp32, what stays in fp32, ranges that are kept, and wrong calibrations."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.core.errors import LossWarning, SanpError
from sanp.core.int8_calibration import keep_calibration, kept_calibration, read_calibration
from sanp.engine.bench.tables import int8_table
from sanp.engine.library import Unavailable, native_library
from sanp.engine.names import ALGORITHMS
from sanp.engine.quantise.loss import loss_of
from sanp.engine.quantise.ranges import BINS, Histogram, Steps, range_of
from sanp.experiments.documents import filled
from sanp.experiments.results import read_results
from sanp.gating.network import GatedNetwork
from tests.engine.networks import EXAMPLES, Residual, gated_network, trained_like

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)

SHAPE = (3, 18, 22)


def images(count: int = 48, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    contrast = 0.5 + torch.rand(count, 1, 1, 1, generator=generator)
    return contrast * torch.randn(count, *SHAPE, generator=generator)


@pytest.fixture
def gated() -> GatedNetwork:
    torch.manual_seed(0)
    return gated_network(trained_like(Residual(), SHAPE), images(2))


def compiled(network: nn.Module, **settings: object) -> sanp.engine.Engine:
    given = {"precision": "int8", "calibration": images(), "tune": False, **settings}
    return sanp.compile(network, images(4), **given)  # type: ignore[arg-type]


def test_int8_gives_nearly_what_fp32_gives(gated: GatedNetwork) -> None:
    fast = compiled(gated)
    x = images(40, seed=9)
    loss = loss_of(fast, gated, x)
    assert 0 < loss.error < 0.05
    assert loss.decisions >= 0.99
    convolutions = [row.how for row in fast.plan if row.how == "int8 direct"]
    assert len(convolutions) == 5
    assert fast.plan.precision == "int8"


def test_samples_are_the_same_alone_in_a_batch_and_on_two_threads(gated: GatedNetwork) -> None:
    x = images(5, seed=3)
    one, two = compiled(gated), compiled(gated, threads=2)
    alone = torch.cat([one(x[i : i + 1]) for i in range(5)])
    assert torch.equal(one(x), alone)
    assert torch.equal(torch.cat([two(x[i : i + 1]) for i in range(5)]), alone)
    assert torch.equal(two(x), alone)


class Chain(nn.Module):
    """Convolutions one after the other, which can be computed again by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 9, 3, padding=1)
        self.second = nn.Conv2d(9, 14, 3, stride=2, padding=1)
        self.third = nn.Conv2d(14, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        return self.third(F.relu6(self.second(x)))


def simulated(net: Chain, x: Tensor, tops: list[float]) -> Tensor:
    """The same in torch: whole numbers in double precision between two roundings to bytes."""

    def steps(value: Tensor, scale: float) -> Tensor:
        return (value / scale).round().clamp(0, 255)

    def whole(weight: Tensor) -> tuple[Tensor, Tensor]:
        scale = weight.detach().abs().amax((1, 2, 3), keepdim=True).double() / 127
        return (weight.detach().double() / scale).round(), scale.flatten()[:, None, None]

    first, second = (top / 255 for top in tops)
    bytes_in = F.max_pool2d(steps(F.relu(net.stem(x)).double(), first), 2)
    weight, scale = whole(net.second.weight)
    made = (
        F.conv2d(bytes_in, weight, stride=2, padding=1) * scale * first
        + net.second.bias.detach().double()[:, None, None]
    )
    bytes_between = steps(made.clamp(0, 6), second)
    weight, scale = whole(net.third.weight)
    return F.conv2d(bytes_between, weight, padding=1) * scale * second + net.third.bias.detach().double()[:, None, None]


def test_the_engine_is_the_simulation_in_torch() -> None:
    torch.manual_seed(0)
    net = Chain().eval()
    fast = compiled(net)
    kept = kept_calibration(net)
    assert kept is not None
    assert [low for low, _ in kept.ranges.values()] == [0, 0]
    tops = [top for _, top in kept.ranges.values()]
    x = images(16, seed=5)
    with torch.no_grad():
        wanted, fp32 = simulated(net, x, tops), net(x)
    step = tops[1] / 255 * float(net.third.weight.detach().abs().max())
    difference = (fast(x) - wanted).abs()
    # The first layer is fp32 and may round otherwise, which moves a byte by one step once in thousands of times.
    assert float(difference.max()) < 2 * step
    assert float((difference > 1e-4).float().mean()) < 0.02
    assert float((fast(x) - fp32).abs().max()) > 2 * step


@pytest.mark.parametrize("name", EXAMPLES)
def test_networks_of_all_styles_run_and_say_what_stays_in_fp32(name: str) -> None:
    kind, shape = EXAMPLES[name]
    net = trained_like(kind(), shape)
    x = torch.randn(40, *shape, generator=torch.Generator().manual_seed(2))
    fast = sanp.compile(net, x[:2], tune=False, precision="int8", calibration=x)
    loss = loss_of(fast, net, x[:16])
    assert loss.error < 0.15
    for row in fast.plan:
        if row.where == "native" and row.how in ALGORITHMS:
            assert row.why, row


@pytest.mark.parametrize(("size", "on_bytes"), [(64, True), (32, False)])
def test_a_first_layer_is_on_bytes_if_it_has_much_of_the_work(size: int, on_bytes: bool) -> None:
    """3 x 7 x 7 x 48 x 32 x 32 are 7.2 million multiply-adds; a quarter of them is not much."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 48, 7, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(48, 8, 3, padding=1)
    ).eval()
    x = torch.randn(40, 3, size, size, generator=torch.Generator().manual_seed(1))
    fast = sanp.compile(net, x[:2], precision="int8", calibration=x, tune=False)
    first = next(row for row in fast.plan if row.flops)
    assert (first.how == "int8 direct") == on_bytes
    assert (first.how in ALGORITHMS) != on_bytes
    assert ("int8 pool" in [row.how for row in fast.plan]) == on_bytes
    assert loss_of(fast, net, x[:20]).error < 0.05


def test_ranges_are_kept_with_the_network_and_in_its_file(gated: GatedNetwork, tmp_path: Path) -> None:
    first = compiled(gated)
    sanp.save(gated, tmp_path / "n.safetensors")
    loaded = sanp.load(tmp_path / "n.safetensors", Residual()).eval()
    assert kept_calibration(loaded) == kept_calibration(gated)
    assert kept_calibration(gated) is not None
    x = images(6, seed=4)
    again = compiled(loaded, calibration=None)
    assert torch.equal(again(x), first(x))
    assert "example_input" in again.plan.notes[0]


def test_ranges_of_another_network_are_refused(gated: GatedNetwork) -> None:
    compiled(gated)
    kept = kept_calibration(gated)
    assert kept is not None
    keep_calibration(gated, replace(kept, ranges=dict(list(kept.ranges.items())[1:])))
    with pytest.raises(SanpError, match="give calibration=images again"):
        compiled(gated, calibration=None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"calibration": None}, "wants calibration=images"),
        ({"calibration": images(1)}, "has 1 samples: ranges want at least 16"),
        ({"calibration": images()[:, :, :9]}, r"samples of shape \(3, 9, 22\)"),
        ({"calibration": images().double()}, "torch.float64"),
        ({"calibration": images(1).expand(48, -1, -1, -1)}, "the same sample many times"),
        ({"calibration": images() * float("nan")}, "NaN"),
        ({"calibration": (images(), images())}, "calibration holds 2 tensors and example_input 1"),
        ({"calibration": []}, "holds no batches"),
        ({"calibration": [images(20), images(20)[:, :2]]}, "do not go together"),
        ({"calibration": 7}, "calibration holds 0 tensors"),
        ({"precision": "int4"}, "unknown precision 'int4'"),
        ({"precision": "fp32"}, "needs none"),
    ],
)
def test_wrong_calibrations_are_refused(gated: GatedNetwork, settings: dict[str, object], message: str) -> None:
    with pytest.raises(SanpError, match=message):
        compiled(gated, **settings)


def test_a_loader_with_labels_is_as_good_as_its_images(gated: GatedNetwork) -> None:
    compiled(gated)
    wanted = kept_calibration(gated)
    labels = torch.zeros(48, dtype=torch.int64)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images(), labels), batch_size=20)
    compiled(gated, calibration=loader)
    assert kept_calibration(gated) == wanted


def test_no_more_of_a_loader_is_read_than_is_needed(gated: GatedNetwork) -> None:
    read = []
    compiled(gated, calibration=(read.append(seed) or images(200, seed) for seed in range(9)))
    assert read == [0, 1, 2]


def test_a_network_of_several_inputs_is_calibrated_by_batches_of_them() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.b(F.relu(self.a(x)) + F.relu(self.a(y)))

    torch.manual_seed(0)
    net, x, y = Two().eval(), images(), images(seed=2)
    joined, batches = (
        sanp.compile(net, (x[:1], y[:1]), precision="int8", calibration=given, tune=False)
        for given in ((x, y), [(x[:24], y[:24]), (x[24:], y[24:])])
    )
    assert torch.equal(joined(x, y), batches(x, y))


@pytest.mark.parametrize("factor", [0.02, 100.0])
def test_images_that_were_prepared_otherwise_are_told(gated: GatedNetwork, factor: float) -> None:
    with pytest.warns(LossWarning) as told:
        compiled(gated, calibration=factor * images())
    assert any("on the example_input" in str(warning.message) for warning in told)


def test_numbers_that_are_not_finite_are_those_of_torch(gated: GatedNetwork) -> None:
    fast = compiled(gated)
    x = images(3, seed=6)
    x[1, 0, 0, 0] = float("nan")
    expected = gated(x)
    torch.testing.assert_close(fast(x)[1], expected[1], equal_nan=True)
    assert fast(x)[0].isfinite().all()


def test_a_channel_that_is_never_positive_has_no_range() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    nn.init.constant_(net[0].bias, -1e3)  # type: ignore[arg-type]
    fast = compiled(net)
    torch.testing.assert_close(fast(images(3)), net(images(3)))


def test_calibration_changes_only_the_ranges_of_the_network(gated: GatedNetwork) -> None:
    before = copy.deepcopy(gated.state_dict())
    compiled(gated)
    after = gated.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_document_s_table_is_what_the_results_say() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "engine.md").read_text(encoding="utf-8")
    table = int8_table(read_results(root / "results" / "int8.jsonl"))
    assert "M-CifarNet | 1 |" in table
    assert filled(text, "int8", table) == text


def test_the_range_cuts_off_what_is_rare_and_far_away() -> None:
    histogram = Histogram(0.0, 4.0)
    histogram.add(torch.rand(1_000_000, generator=torch.Generator().manual_seed(0)))
    histogram.add(torch.tensor([4.0]))
    low, top = range_of(histogram)
    assert low == 0 and 1.0 <= top < 3
    even = Histogram(0.0, 1.0)
    even.add(torch.linspace(0.001, 1, 10 * BINS))
    assert range_of(even)[1] > 0.97


def test_a_range_on_both_sides_of_zero_has_ends_of_its_own() -> None:
    """Of what is spread evenly from -1 to 3, and once is -4, the bytes are for -1 to 3, and zero is one of them."""
    histogram = Histogram(-4.0, 3.0)
    histogram.add(4 * torch.rand(1_000_000, generator=torch.Generator().manual_seed(0)) - 1)
    histogram.add(torch.tensor([-4.0]))
    low, top = range_of(histogram)
    assert -1.5 < low < -0.9 and 2.9 < top <= 3
    steps = Steps.of((low, top))
    assert steps.zero == round(255 * -low / (top - low))
    assert float(steps.scale[0]) == pytest.approx((top - low) / 255)


@pytest.mark.parametrize(
    "damaged",
    [
        3,
        {"ranges": 3},
        {"ranges": {"a": 1.0}},
        {"ranges": {"a": [1.0, 2.0]}},
        {"ranges": {"a": [-1.0, -2.0]}},
        {"ranges": {"a": [-1.0, float("inf")]}},
        {"ranges": {"a": [float("nan"), 1.0]}},
        {"ranges": {"a": [True, 1.0]}},
        {"errors": {"a": -1}},
        {"fp32": "conv"},
        {"more": 1},
    ],
)
def test_a_damaged_calibration_is_refused(damaged: object) -> None:
    with pytest.raises(SanpError, match="int8"):
        read_calibration(damaged)
