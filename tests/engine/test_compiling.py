"""sanp.compile against the network it was compiled from."""

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import sanp
from sanp.core.errors import SanpError, SlowWarning
from sanp.engine import compile
from sanp.engine.library import Unavailable, native_library
from sanp.spm.module import SPMConfig
from tests.engine.networks import EXAMPLES, assert_same, gated_network, trained_like

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", sanp.backbones.BACKBONES)
def test_every_backbone_gated_gives_the_same_outputs(name: str, threads: int) -> None:
    torch.manual_seed(0)
    net = trained_like(sanp.backbones.BACKBONES[name](num_classes=10), (3, 32, 32))
    x = torch.randn(3, 3, 32, 32)
    # Saliencies of a wide spread multiply through fifty layers until rounding decides everything, in torch too.
    gated = gated_network(net, x, spread=0.3 if name in ("resnet50", "mobilenet_v2") else 1.0)
    fast = compile(gated, x, threads=threads)
    assert fast.plan.native
    assert_same(fast, gated, x)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_networks_of_many_styles_give_the_same_outputs(name: str, gated: bool) -> None:
    make, shape = EXAMPLES[name]
    for seed in range(3):
        torch.manual_seed(seed)
        net = trained_like(make(), shape, seed)
        x = torch.randn(4, *shape)
        network = gated_network(net, x, seed=seed) if gated else net
        fast = compile(network, x[:1])
        assert any(row.where == "native" for row in fast.plan)
        assert fast.plan.native == (name != "dilated")
        for batch in (1, 4):
            assert_same(fast, network, x[:batch])


@pytest.mark.parametrize(
    "config",
    [
        SPMConfig(group=4),
        SPMConfig(bias=None, standardize=False),
        SPMConfig(reduction=64),
        SPMConfig(most=0.3),
        SPMConfig(centre=1.5),
    ],
)
def test_every_setting_of_the_gates_gives_the_same_outputs(config: SPMConfig) -> None:
    make, shape = EXAMPLES["residual"]
    torch.manual_seed(0)
    x = torch.randn(6, *shape)
    gated = gated_network(trained_like(make(), shape), x, config=config)
    fast = compile(gated, x)
    assert fast.plan.native
    assert_same(fast, gated, x)


@pytest.mark.parametrize("threshold", [-1e9, 1e9])
def test_all_channels_open_and_one_channel_open(threshold: float) -> None:
    make, shape = EXAMPLES["residual"]
    torch.manual_seed(0)
    x = torch.randn(3, *shape)
    gated = gated_network(trained_like(make(), shape), x)
    for layer in gated.layers.values():
        layer.spm.threshold.fill_(threshold)
    fast = compile(gated, x)
    assert fast.plan.native
    assert_same(fast, gated, x)


def test_weights_that_are_not_finite_run_in_torch() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).eval()
    net[0].weight.data[1] = torch.nan
    with pytest.warns(SlowWarning, match="runs 100% of this network's FLOPs in torch.*weights that are NaN"):
        fast = compile(net, torch.zeros(1, 1, 5, 5))
    assert not fast.plan.native and fast.plan.native_share == 0
    assert "NaN" in fast.plan.rows[0].why
    assert bool(fast(torch.ones(1, 1, 5, 5))[0, 1].isnan().all())


def test_wrong_arguments_get_clear_errors() -> None:
    with pytest.raises(SanpError, match="threads=0"):
        compile(nn.Conv2d(2, 3, 3), torch.zeros(1, 2, 8, 8), threads=0)
    with pytest.raises(SanpError, match="no samples"):
        compile(nn.Conv2d(2, 3, 3), torch.zeros(0, 2, 8, 8))
    with pytest.raises(SanpError, match="too many positional arguments"):
        compile(nn.Conv2d(2, 3, 3), torch.zeros(1, 2, 8, 8))(torch.zeros(1, 2, 8, 8), torch.zeros(1))


def test_without_the_library_one_warning_says_so_and_outputs_are_the_same(no_library: None) -> None:
    net = nn.Conv2d(2, 3, 3).eval()
    x = torch.randn(2, 2, 8, 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast = compile(net, x)
        compile(net, x)
    assert [str(w.message) for w in caught] == ["sanp.compile runs in torch and skips nothing: SANP_NATIVE is off"]
    assert torch.equal(fast(x), net(x))
    assert fast.plan.instruction_set == "none"


def test_the_plan_says_what_runs_where_and_why() -> None:
    make, shape = EXAMPLES["dilated"]
    fast = compile(trained_like(make(), shape), torch.randn(1, *shape))
    torch_rows = {row.how: row.why for row in fast.plan if row.where == "torch"}
    assert torch_rows["upsample_bicubic2d"] == "operator upsample_bicubic2d is not known to the native part"
    assert {"wide", "tall"} <= {row.layer for row in fast.plan if row.where == "native"}
    assert "upsample_bicubic2d" in str(fast.plan)


def test_a_linear_layer_over_positions_is_right_for_any_batch() -> None:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.mix = nn.Conv2d(3, 8, 3), nn.Linear(8, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.mix(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    network = Mixer().eval()
    fast = compile(network, torch.randn(1, 3, 7, 7))
    assert fast.plan.native
    for batch in (1, 2, 5):
        assert_same(fast, network, torch.randn(batch, 3, 7, 7))


def test_a_plan_says_how_much_of_the_network_is_native() -> None:
    class InDouble(nn.ConvTranspose2d):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x.double()).float()

    net = nn.Sequential(nn.Conv2d(3, 8, 3), InDouble(8, 2, 2, dilation=2).double(), nn.ReLU()).eval()
    with pytest.warns(SlowWarning, match="23% of this network's FLOPs in torch.*not float32"):
        fast = compile(net, torch.randn(1, 3, 7, 7))
    dense, transposed = 25 * 8 * 27, 25 * 8 * 2 * 4  # at the 5 · 5 positions that both are applied to
    assert fast.plan.native_share == pytest.approx(dense / (dense + transposed))


def test_mixing_samples_runs_in_torch() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return y - y.flip(0)

    network = Mixed().eval()
    x = torch.randn(3, 1, 6, 6)
    fast = compile(network, x)
    assert [(row.layer, row.where) for row in fast.plan] == [
        ("conv", "native"), ("forward: flip", "torch"), ("forward: sub", "torch")
    ]  # fmt: skip
    assert fast.plan.rows[1].why == "flip mixes the samples of a batch"
    assert_same(fast, network, x)


@pytest.mark.parametrize("name", ["residual", "dilated"])
def test_autocast_around_it_changes_nothing(name: str) -> None:
    make, shape = EXAMPLES[name]
    torch.manual_seed(0)
    x = torch.randn(2, *shape)
    network = gated_network(trained_like(make(), shape), x)
    wanted = compile(network, x, tune=False)
    with torch.autocast("cpu", torch.bfloat16):
        fast = compile(network, x, tune=False)
        inside = fast(x)
    assert [row.where for row in fast.plan] == [row.where for row in wanted.plan]
    for given, expected in zip(tree_leaves(inside), tree_leaves(wanted(x)), strict=True):
        assert torch.equal(given, expected)
