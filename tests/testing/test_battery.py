"""The battery: a sample of model zoos passes it, and networks that lie do not."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.gating.cost import CostModel
from sanp.gating.sites import ON_A_VECTOR
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.testing import CHECKS, CheckError, check_network
from sanp.testing.truth import check_cost_is_what_is_left
from sanp.tracing.masks import MaskTable
from tests.networks.families import CLASSIFICATION, maker
from tests.networks.parts import IMAGE, Net, block, conv
from tests.networks.strangers import STRANGERS
from tests.networks.transformers_networks import TRANSFORMERS, transformers_network

SAMPLE = (
    "densenet_cifar diaresnet_cifar nin_cifar preresnet_cifar resneta resnesta resnext_cifar seresnet_cifar".split()
)
zoo = pytest.mark.skipif(importlib.util.find_spec("pytorchcv") is None, reason="pytorchcv is not installed")
hugging = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")


@zoo
@pytest.mark.parametrize("family", SAMPLE)
def test_families_of_pytorchcv_pass(family: str) -> None:
    make, size = maker(family)
    report = check_network(make, torch.randn(1, 3, size, size))
    assert (report.gated_share == 1.0) == (not report.skipped) and report.gated_share > 0.93
    assert set(report.skipped.values()) <= {ON_A_VECTOR} and report.skipped_checks == {}


@zoo
def test_there_are_more_than_sixty_families_and_all_can_be_found() -> None:
    assert len(CLASSIFICATION) > 60
    for family in CLASSIFICATION:
        assert importlib.util.find_spec(f"pytorchcv.models.{family}") is not None


@hugging
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_networks_of_transformers_pass(name: str) -> None:
    make, example = transformers_network(name)
    report = check_network(make, example)
    assert (report.gated_share == 1.0) == (not report.skipped) and report.gated_share > 0.99
    assert set(report.skipped.values()) <= {ON_A_VECTOR}


@pytest.mark.parametrize("name", ["depthwise", "keywords", "a functional batch norm", "an object as output"])
def test_strangers_pass_every_check(name: str) -> None:
    report = check_network(*STRANGERS[name])
    in_torch = {"a functional batch norm", "an object as output"}
    assert report.skipped_checks.keys() == ({"check_compiled"} if name in in_torch else set())
    assert report.gated + report.following == report.convolutions


class NoisyHead(nn.Module):
    """Dropout in evaluation too."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, training=True)


def by_name(n: Net, x: Tensor) -> Tensor:
    y: Tensor = n.b(input=nn.functional.relu(n.norm(input=n.a(input=x))))
    return y


def after_its_own_input(n: Net, x: Tensor) -> Tensor:
    y: Tensor = n.a(x)
    z: Tensor = n.b(y)
    y.zero_()
    return z


ODD: dict[str, tuple[Callable[[], nn.Module], tuple[int, float, set[str]]]] = {
    "modules called by name": (
        lambda: Net(by_name, a=conv(3, 6), norm=nn.BatchNorm2d(6), b=conv(6, 4)),
        (2, 1.0, set()),
    ),
    "a traced module": (
        lambda: nn.Sequential(block(3, 6), torch.jit.trace(block(6, 6).eval(), torch.randn(1, 6, 8, 8)), conv(6, 2)),
        (2, 1.0, set()),
    ),
    "random numbers": (lambda: nn.Sequential(block(3, 6), NoisyHead(), conv(6, 2)), (2, 0.0, {"check_compiled"})),
    "one that writes over what its backward needs": (
        lambda: Net(after_its_own_input, a=block(3, 6), b=conv(6, 4)),
        (2, 1.0, {"check_training_step"}),
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("name", ODD)
def test_odd_networks_pass_every_check_that_applies(name: str) -> None:
    make, (gated, native, left_out) = ODD[name]
    report = check_network(make, IMAGE)
    assert report.gated == gated and report.native_share == native
    assert report.skipped_checks.keys() >= left_out and "check_deepcopy" not in report.skipped_checks


def chain() -> nn.Module:
    return nn.Sequential(block(3, 6), block(6, 6, groups=6), block(6, 4))


def test_a_cost_that_forgets_a_sparse_input_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaskTable, "add_gate", lambda self, name, channels: torch.zeros(channels, dtype=torch.long))
    with pytest.raises(CheckError, match="check_cost_is_what_is_left"):
        check_network(chain, IMAGE, checks=(check_cost_is_what_is_left,))


def test_a_cost_that_is_too_low_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    true = CostModel.per_layer
    monkeypatch.setattr(
        CostModel, "per_layer", lambda self, given: {name: cost - 8 for name, cost in true(self, given).items()}
    )
    with pytest.raises(CheckError, match="is said to cost"):
        check_network(chain, IMAGE, checks=(check_cost_is_what_is_left,))


def _leak(self: GatedConv, y: Tensor, scale: Tensor) -> Tensor:
    return y * (scale + 1e-3).reshape(*scale.shape, 1, 1)


def _ignore(self: FollowingConv, x: Tensor) -> Tensor:
    return self.features(x)


@pytest.mark.parametrize(
    "kind, method, wrong, check",
    [
        (GatedConv, "scaled", _leak, "check_open_gates_change_nothing"),
        (FollowingConv, "forward", _ignore, "check_cost_is_what_is_left"),
    ],
)
def test_a_layer_that_does_not_do_as_it_says_is_found(
    kind: Any, method: str, wrong: Any, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, method, wrong)
    with pytest.raises((CheckError, sanp.SanpError)) as caught:
        check_network(chain, IMAGE)
    assert check in str(caught.value) or "computes something else" in str(caught.value)


def test_kernels_that_do_not_learn_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    features = GatedConv.features
    monkeypatch.setattr(GatedConv, "features", lambda self, x: features(self, x).detach())
    with pytest.raises(CheckError, match="check_training_step: training changes no kernel"):
        check_network(lambda: nn.Sequential(block(3, 4), conv(4, 2)), IMAGE)


def test_kernels_that_are_frozen_by_choice_pass() -> None:
    def frozen() -> nn.Module:
        net = nn.Sequential(block(3, 4), conv(4, 2))
        return net.requires_grad_(False)

    assert check_network(frozen, IMAGE).gated == 2


def test_a_network_that_draws_random_numbers_is_compared_with_the_same_ones_or_passed_over() -> None:
    noisy = lambda: nn.Sequential(conv(3, 4), _Noise())  # noqa: E731
    assert check_network(noisy, IMAGE, checks=CHECKS[:1]).skipped_checks == {}
    own = torch.Generator().manual_seed(0)
    report = check_network(lambda: nn.Sequential(conv(3, 4), _Noise(own)), IMAGE, checks=CHECKS[:1])
    assert report.skipped_checks == {
        "check_open_gates_change_nothing": "the network draws random numbers in evaluation"
    }


class _Noise(nn.Module):
    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.draw = lambda shape: torch.randn(shape, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        noise: Tensor = self.draw(x.shape)
        return x + noise


def test_a_convolution_of_constants_is_no_part_of_the_cost() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.project, self.last = block(3, 4), conv(2, 4, 1), conv(4, 2)

        def forward(self, x: Tensor) -> Any:
            places = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")).to(x)
            return self.last(self.features(x) + self.project(places[None]))

    report = check_network(Positions, IMAGE, checks=(check_cost_is_what_is_left,))
    assert report.convolutions == 2 and report.dense_flops == 64 * ((27 + 1) * 4 + (36 + 1) * 2)
