"""Modules that do more than a convolution and a batch norm, and writes to any part of memory: native and right."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.engine.compiled import Engine
from sanp.engine.rounding import largest_gap
from sanp.testing import CheckError, check_network
from sanp.testing.compiled import check_compiled

IMAGES = torch.randn(5, 3, 10, 12, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Modules, and a function that puts them together."""

    def __init__(self, run: Callable[[nn.Module, Tensor], Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, module in {"a": nn.Conv2d(3, 12, 3, padding=1), "c": nn.Conv2d(12, 5, 3, padding=1)}.items():
            self.add_module(name, modules.pop(name, module))
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def plain(m: nn.Module, x: Tensor) -> Tensor:
    return m.c(F.relu(m.a(x)))


def normalised(m: nn.Module, x: Tensor) -> Tensor:
    return m.c(m.norm(m.a(x)))


class AddsItself(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + super().forward(x))


class ActsBefore(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.relu(x))


class Blurs(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.avg_pool2d(x, 3, 1, 1))


class Wraps(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), self.weight, self.bias)


class ResponseNorm(nn.Module):
    """Of ConvNeXt V2, with the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(1, 1, 1, 12)), nn.Parameter(torch.randn(12))

    def forward(self, x: Tensor) -> Tensor:
        g = x.norm(p=2, dim=(1, 2), keepdim=True)
        n = g / (g.mean(-1, keepdim=True) + 1e-6)
        return x + torch.addcmul(self.bias.view(1, 1, 1, -1), self.weight, x * n, value=0.5)


def hooked() -> nn.Module:
    conv = nn.Conv2d(3, 12, 3, padding=1)
    conv.register_forward_pre_hook(lambda module, args: (args[0] * 2 - 1,))
    return conv


def shifted(m: nn.Module, x: Tensor) -> Tensor:
    """Channels moved by a pixel, as in shift networks: writes that are neither whole maps nor whole channels."""
    y = F.relu(m.a(x))
    out = torch.zeros_like(y)
    out[:, :4, :, 1:] = y[:, :4, :, :-1]
    out[:, 4:8, 1:] = y[:, 4:8, :-1]
    out[:, 8:] = y[:, 8:]
    return m.c(out)


def into_constants(m: nn.Module, x: Tensor) -> Tensor:
    y = m.a(x)
    out = torch.zeros(len(x), 12, 10, 14)
    out[:, :, :, 1:13] = y
    out[:, 2, 3] = 0
    return m.c(out)


def every_other_row(m: nn.Module, x: Tensor) -> Tensor:
    y = F.relu(m.a(x))
    z = m.b(y).clone()
    z[:, 1:5] += y[:, 2:6]
    z[:, :, ::2] *= 2
    return m.c(z)


def through_a_view(m: nn.Module, x: Tensor) -> Tensor:
    y = m.a(x)
    y.view(len(y), -1).mul_(2).relu_()
    return m.c(y)


def repeated(m: nn.Module, x: Tensor) -> Tensor:
    y = m.a(x)
    y[:, :, :, 2:5] = y[:, :, :, :1]
    return m.c(y)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "circular padding": lambda: Net(
        plain, a=nn.Conv2d(3, 12, 3, padding=1, padding_mode="circular"),
        c=nn.Conv2d(12, 5, 5, padding=2, padding_mode="reflect"),
    ),
    "depthwise with mirrored edges": lambda: Net(
        lambda m, x: m.c(m.d(F.relu(m.a(x)))),
        d=nn.Conv2d(12, 12, 3, padding=1, groups=12, padding_mode="reflect", bias=False),
    ),
    "depthwise that wraps": lambda: Net(
        lambda m, x: m.c(m.d(F.relu(m.a(x)))),
        d=nn.Conv2d(12, 12, 3, padding=1, groups=12, padding_mode="circular", bias=False),
    ),
    "padding of its own that wraps": lambda: Net(plain, c=Wraps(12, 5, 3)),
    "a mean before the convolution": lambda: Net(plain, c=Blurs(12, 5, 3, padding=1)),
    "a hook before the convolution": lambda: Net(plain, a=hooked()),
    "a norm that adds its input": lambda: Net(normalised, norm=AddsItself(12)),
    "a norm after its activation": lambda: Net(normalised, norm=ActsBefore(12)),
    "channels that are shifted": lambda: Net(shifted),
    "writes into constants": lambda: Net(into_constants),
    "writes to every other row": lambda: Net(every_other_row, b=nn.Conv2d(12, 12, 3, padding=1)),
    "writes through a view": lambda: Net(through_a_view),
    "a column that is repeated": lambda: Net(repeated),
    "a view of a softmax": lambda: Net(
        lambda m, x: m.c(F.relu(m.a(x)).softmax(1).view(len(x), 120, 12).flip(1).view(len(x), 12, 10, 12))
    ),
    "constant indices": lambda: Net(lambda m, x: m.c(m.a(x)[:, torch.tensor([3, 1, 0, 2] * 3)])),
    "windows as channels": lambda: Net(
        lambda m, x: m.c(F.unfold(F.relu(m.a(x)), 3, padding=1).view(len(x), 12, 9, 10, 12).sum(2))
    ),
    "turned by a half": lambda: Net(lambda m, x: m.c(torch.rot90(m.a(x), 2, (2, 3)))),
    "unit length": lambda: Net(lambda m, x: m.c(F.normalize(F.relu(m.a(x)), dim=1))),
    "response norm over pixels": lambda: Net(
        lambda m, x: m.c(m.r(F.gelu(m.a(x)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)), r=ResponseNorm()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_it_runs_natively_and_agrees_whatever_its_gates_do(name: str) -> None:
    torch.manual_seed(0)
    report = check_network(NETWORKS[name], IMAGES, checks=(check_compiled,))
    assert report.native_share == 1 and report.in_torch == ""
    assert report.difference is not None and report.difference < 1e-4


@pytest.mark.filterwarnings("ignore::sanp.core.errors.SlowWarning")
def test_a_constant_in_written_memory_is_right_wherever_it_runs() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        y = m.a(x)
        y[:, 1:3, 2:4] = 0.5
        return m.c(y)

    torch.manual_seed(0)
    net = sanp.gate(Net(run), IMAGES[:1]).eval()
    with torch.no_grad():
        assert largest_gap([sanp.compile(net, IMAGES[:2])(IMAGES)], [net(IMAGES)]) < 1e-4


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_reaches_the_samples_that_torch_mixes_it_with(number: float) -> None:
    torch.manual_seed(0)
    net = sanp.gate(Net(lambda m, x: m.c(torch.roll(m.a(x), 1, 0))), IMAGES[:1]).eval()
    fast = sanp.compile(net, IMAGES[:2])
    assert "mixes the samples" in fast.plan.reasons()
    images = IMAGES.clone()
    images[2, 0, 3, 3] = number
    with torch.no_grad():
        expected = net(images)
    assert [bool(each.isfinite().all()) for each in expected] == [True, True, True, False, True]
    assert largest_gap([fast(images)], [expected]) < 1e-4


def test_the_battery_compares_scores_and_numbers_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest_gap([torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 2.1])]) == pytest.approx(0.1 / 2.1)
    assert largest_gap([torch.tensor([1.0, float("nan")])], [torch.ones(2)]) == float("inf")
    right = Engine.run_forced

    def wrong(self: Engine, example: Tensor, decisions: dict[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        outputs, scores = right(self, example, decisions)
        return outputs, {name: score * 1.001 if name == "c" else score for name, score in scores.items()}

    with monkeypatch.context() as patched:
        patched.setattr("sanp.testing.compiled.compile", _compiled_with(wrong))
        with pytest.raises(CheckError, match=r"the engine differs by 1.*e-03"):
            check_network(lambda: Net(plain), IMAGES, checks=(check_compiled,))


def _compiled_with(run_forced: Callable[..., object]) -> Callable[..., Engine]:
    """sanp.compile, of which the engine is changed after it was checked."""

    def build(*args: object, **kwargs: object) -> Engine:
        engine = sanp.compile(*args, **kwargs)  # type: ignore[arg-type]
        engine.run_forced = lambda *given: run_forced(engine, *given)  # type: ignore[method-assign]
        return engine

    return build
