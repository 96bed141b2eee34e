"""int8 on networks of pytorchcv and on odd networks: every operator against its simulation in torch."""

import importlib.util
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.core.errors import LossWarning, SanpError
from sanp.engine import building
from sanp.engine.compiled import Engine
from sanp.engine.library import Unavailable, native_library
from sanp.engine.quantise.rewriting import Rewritten, rewritten
from tests.engine.networks import conv_bn, gated_network, trained_like
from tests.networks.families import maker
from tests.tools.byte_steps import StepByStep

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)

zoo = pytest.mark.skipif(importlib.util.find_spec("pytorchcv") is None, reason="pytorchcv is not installed")
both = pytest.mark.parametrize("gated", [False, True], ids=["dense", "gated"])


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Rewritten]:
    """The programs on bytes that are made, in order."""
    made: list[Rewritten] = []

    def noted(*args: object) -> Rewritten:
        made.append(rewritten(*args))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(building, "rewritten", noted)
    return made


def compiled(net: nn.Module, shape: tuple[int, ...], *, gated: bool, samples: int = 24) -> tuple[Engine, Tensor]:
    """The int8 engine of an untrained network, whose outputs on noise have so little spread that a loss is told."""
    x = torch.randn(samples, *shape, generator=torch.Generator().manual_seed(2))
    net = trained_like(net, shape)
    if gated:
        net = gated_network(net, x[:2], spread=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        return sanp.compile(net, x[:2], tune=False, precision="int8", calibration=x), x


def followed(fast: Engine, programs: list[Rewritten], x: Tensor) -> StepByStep:
    """The engine's last program on a batch, operator by operator."""
    found = fast.run_recorded(x)
    assert found is not None
    return StepByStep(programs[-1].writer, [x], list(found[1].values()))


def check_steps(fast: Engine, programs: list[Rewritten], x: Tensor) -> None:
    """No byte may be further off than a step, and that only where numbers lie at a tie; fp32 rounds as it does."""
    steps = followed(fast, programs, x)
    assert steps.bytes > 0
    assert steps.farthest <= 1
    assert steps.different <= 1e-4 * steps.bytes + 1
    assert steps.worst < 1e-4


@zoo
@both
@pytest.mark.parametrize("family", ["resnet_cifar", "preresnet_cifar", "densenet_cifar", "seresnet_cifar"])
def test_networks_of_another_zoo_are_their_simulation(family: str, gated: bool, programs: list[Rewritten]) -> None:
    make, size = maker(family)
    torch.manual_seed(0)
    fast, x = compiled(make(), (3, size, size), gated=gated)
    check_steps(fast, programs, x[:3])


class Inception(nn.Module):
    """Branches of several sizes and scales, one of them an average, side by side: the style of GoogLeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 13), nn.ReLU())
        self.first = nn.ModuleList([self.branch(13, 6, 1), self.branch(13, 9, 3), self.branch(13, 5, 5)])
        self.pooled = self.branch(13, 7, 1)
        self.last = nn.Sequential(*conv_bn(27, 11), nn.ReLU())
        self.linear = nn.Linear(11, 4)

    @staticmethod
    def branch(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
        return nn.Sequential(*conv_bn(inputs, outputs, kernel=kernel), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        parts = [branch(x) * 1.0 for branch in self.first] + [self.pooled(F.avg_pool2d(x, 3, 1, 1))]
        joined = torch.cat([parts[0], parts[1], parts[2], parts[3]], 1)
        return self.linear(self.last(joined).mean((2, 3)))


class Between(Inception):
    """An average and a sum between convolutions on bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Sequential(*conv_bn(27, 27), nn.ReLU())
        self.other = nn.Sequential(*conv_bn(27, 27, kernel=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([branch(x) for branch in self.first] + [self.pooled(F.max_pool2d(x, 3, 1, 1))], 1)
        one, two = self.middle(x), self.other(x)
        return self.linear(self.last(F.avg_pool2d(one, 3, 2, 1) + F.avg_pool2d(two, 2, 2)).mean((2, 3)))


@both
@pytest.mark.parametrize("kind", [Inception, Between])
def test_concatenations_sums_and_averages_are_computed_on_bytes(
    kind: type[nn.Module], gated: bool, programs: list[Rewritten]
) -> None:
    torch.manual_seed(0)
    fast, x = compiled(kind(), (3, 18, 18), gated=gated)
    words = [row.how for row in fast.plan]
    if not gated:  # where random gates make int8 lose too much, some layers stay in fp32
        assert words.count("int8 combine") == (2 if kind is Between else 1)
        assert words.count("int8 average") == (2 if kind is Between else 0)
        assert "concat" not in words and "add" not in words
    check_steps(fast, programs, x[:5])


def chain(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Swish(nn.Module):
    """A squeeze-and-excitation block among swishes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 12), nn.SiLU())
        self.wide = nn.Sequential(*conv_bn(12, 24, kernel=1), nn.SiLU(), *conv_bn(24, 24, groups=24), nn.SiLU())
        self.squeeze, self.excite = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.narrow = nn.Sequential(*conv_bn(24, 12, kernel=1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.wide(x)
        y = y * torch.sigmoid(self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return (x + self.narrow(y)).mean((2, 3))


class Shared(nn.Module):
    """One convolution that runs three times, on inputs of other ranges."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 8), nn.ReLU())
        self.again = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(3):
            x = self.again(x).relu()
        return x.mean((2, 3))


ODD: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "odd sizes": (lambda: chain(*conv_bn(3, 9), nn.ReLU(), *conv_bn(9, 17, stride=2), nn.ReLU()), (3, 13, 29)),
    "1x1 with stride 2": (
        lambda: chain(*conv_bn(3, 20), nn.ReLU(), *conv_bn(20, 33, kernel=1, stride=2), nn.ReLU(), *conv_bn(33, 7)),
        (3, 15, 15),
    ),
    "groups": (
        lambda: chain(*conv_bn(3, 12), nn.ReLU(), *conv_bn(12, 18, groups=3), nn.ReLU(), *conv_bn(18, 18, groups=6)),
        (3, 11, 11),
    ),
    "dilation": (
        lambda: chain(
            *conv_bn(3, 10),
            nn.ReLU(),
            nn.Conv2d(10, 10, 3, padding=2, dilation=2),
            nn.ReLU(),
            nn.Conv2d(10, 6, 3, dilation=(1, 3)),
        ),
        (3, 16, 16),
    ),
    "one channel": (
        lambda: chain(
            nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Conv2d(1, 5, 1)
        ),
        (1, 9, 9),
    ),
    "two pixels": (lambda: chain(nn.Conv2d(3, 70, 1), nn.ReLU(), nn.Conv2d(70, 9, 1)), (3, 1, 2)),
    "relu6": (lambda: chain(*conv_bn(3, 8), nn.ReLU6(), *conv_bn(8, 8, groups=8), nn.ReLU6()), (3, 12, 12)),
    "swish": (Swish, (3, 14, 14)),
    "shared": (Shared, (3, 12, 12)),
    "not square": (
        lambda: chain(
            *conv_bn(3, 8),
            nn.ReLU(),
            nn.Conv2d(8, 8, (1, 5), padding=(0, 2)),
            nn.ReLU(),
            nn.Conv2d(8, 8, (5, 1), padding=(2, 0)),
        ),
        (3, 7, 40),
    ),
    "leaky": (lambda: chain(*conv_bn(3, 8), nn.LeakyReLU(0.1), *conv_bn(8, 8), nn.PReLU(8), *conv_bn(8, 8)), (3, 9, 9)),
}


@both
@pytest.mark.parametrize("name", ODD)
def test_an_odd_network_is_its_simulation(name: str, gated: bool, programs: list[Rewritten]) -> None:
    make, shape = ODD[name]
    torch.manual_seed(0)
    fast, x = compiled(make(), shape, gated=gated)
    check_steps(fast, programs, x[:3])


def test_an_image_alone_in_a_batch_of_three_or_not_contiguous_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    fast, x = compiled(Between(), (3, 18, 18), gated=True)
    together = fast(x[:3])
    assert torch.equal(torch.cat([fast(x[n : n + 1]) for n in range(3)]), together)
    assert torch.equal(fast(x[:3].transpose(2, 3).contiguous().transpose(2, 3)), together)
    assert torch.equal(fast(x[:3].contiguous(memory_format=torch.channels_last)), together)
    assert torch.equal(fast(x[:6][::2]), fast(x[[0, 2, 4]]))
    assert torch.equal(fast(x[:0]), together[:0])


def test_calibration_on_images_of_another_kind_is_told() -> None:
    """Images a hundred times darker: what is brighter than the brightest of them is cut off."""
    torch.manual_seed(0)
    x = torch.randn(40, 3, 18, 18, generator=torch.Generator().manual_seed(2))
    net = trained_like(Between(), (3, 18, 18))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fast = sanp.compile(net, x[:8], tune=False, precision="int8", calibration=x / 100)
    said = [str(warning.message) for warning in told if warning.category is LossWarning]
    assert any(words.startswith("int8 changes more than it should on the example_input") for words in said)
    assert any(note.startswith("int8 on the example_input") for note in fast.plan.notes)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (lambda x: None, "wants calibration=images"),
        (lambda x: x[:1], "calibration has 1 samples"),
        (lambda x: x[:1].expand(40, -1, -1, -1), "the same sample many times"),
        (lambda x: x[:, :2], "calibration has samples of shape"),
        (lambda x: torch.full_like(x, float("nan")), "NaN or infinite"),
    ],
    ids=["none", "one", "one many times", "other channels", "nan"],
)
def test_a_calibration_that_cannot_be_is_an_error(images: Callable[[Tensor], Tensor | None], said: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 3, 18, 18)
    with pytest.raises(SanpError, match=said):
        sanp.compile(Between().eval(), x[:2], tune=False, precision="int8", calibration=images(x))
