"""Networks that a compiled engine or an exported file once got wrong without saying so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.core.checks import is_installed
from sanp.core.errors import SanpError
from tests.networks.parts import Net, block

IMAGES = torch.randn(6, 3, 12, 12, generator=torch.Generator().manual_seed(3))
ONNX = pytest.mark.skipif(not is_installed("onnxruntime"), reason="onnxruntime is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::sanp.core.errors.SlowWarning")  # some run in torch


def head(channels: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4))


def deep(channels: int) -> nn.Module:
    """Depthwise, with a shift that a closed channel must not get."""
    norm = nn.BatchNorm2d(channels)
    nn.init.normal_(norm.bias, std=2)
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False), norm)


def gated(net: nn.Module, share: float = 0.7) -> sanp.GatedNetwork:
    network = sanp.gate(net, IMAGES[:1]).eval()
    network.set_budget(share, IMAGES)
    return network


def error(given: Tensor, expected: Tensor) -> float:
    assert given.shape == expected.shape and given.dtype == expected.dtype
    return float((given.double() - expected.double()).abs().max() / expected.double().abs().max())


def shuffled(x: Tensor) -> Tensor:
    return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


FOLLOWING: dict[str, Callable[[], nn.Module]] = {
    "shuffle": lambda: Net(lambda n, x: n.h(n.d(shuffled(n.a(x)))), a=block(3, 12), d=deep(12), h=head(12)),
    "split": lambda: Net(lambda n, x: n.h(n.d(n.a(x)[:, 4:])), a=block(3, 12), d=deep(8), h=head(8)),
    "join": lambda: Net(
        lambda n, x: n.h(n.d(torch.cat([n.a(x), n.b(x)], 1))), a=block(3, 4), b=block(3, 8), d=deep(12), h=head(12)
    ),
    "sum": lambda: Net(lambda n, x: n.h(n.d(n.a(x) + n.b(x))), a=block(3, 8), b=block(3, 8), d=deep(8), h=head(8)),
    "product": lambda: Net(lambda n, x: n.h(n.d(n.a(x) * n.b(x))), a=block(3, 8), b=block(3, 8), d=deep(8), h=head(8)),
    "another reader": lambda: Net(
        lambda n, x: n.h(torch.cat([(y := n.a(x)), n.o(x)], 1)) + n.g(n.d(y)),
        a=block(3, 8), o=block(3, 4), d=deep(8), h=head(12), g=head(8),
    ),
}  # fmt: skip


@ONNX
@pytest.mark.parametrize("name", FOLLOWING)
def test_a_depthwise_convolution_gives_closed_channels_no_shift(name: str, tmp_path: Path) -> None:
    import onnxruntime

    torch.manual_seed(1)
    network = gated(FOLLOWING[name]())
    expected = network(IMAGES).detach()
    fast = sanp.compile(network, IMAGES[:1])
    assert fast.plan.native
    assert error(fast(IMAGES), expected) < 1e-5
    file = sanp.export(network, tmp_path / "m.onnx", IMAGES[:1])
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    assert error(torch.from_numpy(session.run(None, {"input": IMAGES.numpy()})[0]), expected) < 1e-5


class TwoInputs(nn.Module):
    """Keywords in any order, a number and a switch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.h = block(3, 8), block(3, 8), head(8)

    def forward(self, left: Tensor, right: Tensor, *, scale: float = 2.0, parts: bool = False) -> Any:
        y = scale * self.a(left) - self.b(right)
        return y if parts else self.h(y)


def test_keywords_mean_what_they_name_and_numbers_what_they_were() -> None:
    net = TwoInputs().eval()
    left, right = IMAGES[:3], IMAGES[3:]
    fast = sanp.compile(net, {"right": right, "left": left})
    assert any(row.where == "native" for row in fast.plan.rows)
    with torch.no_grad():
        expected = net(left, right)
    for given in (fast(left, right), fast(right=right, left=left), fast(left, right=right, scale=2.0)):
        assert error(given, expected) < 1e-5
    with pytest.raises(SanpError, match=r"scale was given \[3.0\]: this network was compiled with \[2.0\]"):
        fast(left, right, scale=3.0)
    with pytest.raises(SanpError, match="parts was given"):
        fast(left, right, parts=True)
    with pytest.raises(SanpError, match="nonsense"):
        fast(left, right, nonsense=1)


ROWS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "the first row": lambda n, x: n.h((y := n.a(x)) + n.b(y[:1])),
    "the mean row": lambda n, x: n.h((y := n.a(x)) - n.b(y.mean(0, keepdim=True))),
    "the last row": lambda n, x: n.h((y := n.a(x)) + n.b(y)[len(x) - 1]),
    "half of the rows": lambda n, x: n.h((y := n.a(x)) + n.b(y)[: (len(x) + 1) // 2].mean(0)),
    "a number for all": lambda n, x: (n.h(n.b(y := n.a(x))), y.abs().mean()),
    "more rows": lambda n, x: (n.h(n.b(y := n.a(x))), y.permute(0, 2, 3, 1).reshape(-1, 8)),
    "whole numbers": lambda n, x: (n.h(n.b(y := n.a(x))), y.argmax(1, keepdim=True) * 2 + 1),
    "double precision": lambda n, x: (n.h(n.b(y := n.a(x))), y.double().mean((2, 3)) * 2),
    "truth values": lambda n, x: (n.h(n.b(y := n.a(x))), y > 0),
    "numbered rows": lambda n, x: (y := n.h(n.b(n.a(x))))[torch.arange(len(x)), y.argmax(1)],
    "halves of the batch": lambda n, x: (lambda p, q: n.h(p * q))(*n.b(torch.cat((y := n.a(x), y))).chunk(2)),
    "places": lambda n, x: n.b((y := n.a(x)) + F.max_pool2d(y, 3, 1, 1, return_indices=True)[1]),
}
ALL_IN_TORCH = {
    "half of the rows": "the native result differs from torch's",
    "numbered rows": "it does not run in segments (IndexError",
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_not_the_batch_s_come_out_right(name: str) -> None:
    net = Net(ROWS[name], a=block(3, 8), b=block(8, 8), h=head(8)).eval()
    fast = sanp.compile(net, IMAGES[:1])
    if name in ALL_IN_TORCH:
        assert ALL_IN_TORCH[name] in fast.plan.rows[0].why
    assert any(row.where == "native" for row in fast.plan.rows) == (name not in ALL_IN_TORCH)
    assert any(row.where == "torch" for row in fast.plan.rows)
    for batch in (IMAGES[:1], IMAGES[:3], IMAGES):
        with torch.no_grad():
            expected = net(batch)
        pairs = zip(fast(batch), expected, strict=True) if isinstance(expected, tuple) else [(fast(batch), expected)]
        assert all(error(given, wanted) < 1e-5 for given, wanted in pairs)


def turned(x: Tensor) -> Tensor:
    """The map, read at places that lie between its pixels."""
    theta = torch.tensor([[0.8, -0.6, 0.0], [0.6, 0.8, 0.1]]).expand(len(x), 2, 3)
    return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


COUNTED: dict[str, Callable[[], nn.Module]] = {
    "places": lambda: Net(lambda n, x: n.h(n.b(turned(n.a(x)))), a=block(3, 8), b=block(8, 8), h=head(8)),
    "heads": lambda: Net(
        lambda n, x: n.h(n.b((y := n.a(x)) * y.view(len(x), 2, 4, -1).cumsum(-1).view(len(x), *y.shape[1:]))),
        a=block(3, 8), b=block(8, 8), h=head(8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_a_torch_segment_that_counts_samples_leaves_the_rest_native(name: str) -> None:
    network = gated(COUNTED[name]())
    fast = sanp.compile(network, IMAGES[:1])
    assert any(row.where == "native" and row.how == "gate" for row in fast.plan.rows)
    assert any(row.where == "torch" for row in fast.plan.rows)
    for batch in (IMAGES[:1], IMAGES[:2], IMAGES):
        assert error(fast(batch), network(batch).detach()) < 1e-5


def test_an_input_that_has_no_row_for_each_sample_runs_in_torch() -> None:
    net = Net(lambda n, x, weights, much: much * n.h(n.a(x)) * weights, a=block(3, 8), h=head(8)).eval()
    weights, much = torch.rand(4), torch.tensor(2.0)
    fast = sanp.compile(net, (IMAGES[:1], weights, much))
    assert torch.equal(fast(IMAGES, weights, much), net(IMAGES, weights, much))
    assert fast.plan.rows[0].why == "inputs without a row for each sample"


def in_double(n: Net, x: Tensor) -> Tensor:
    y: Tensor = n.b(n.a(x).double()).float()
    return n.h(n.c(y))


CLASSES = torch.tensor([3, 0, 4, 1, 1, 2])
KINDS: dict[str, tuple[Callable[[], Net], Any]] = {
    "double precision inside": (
        lambda: Net(in_double, a=block(3, 8), b=block(8, 8).double(), c=block(8, 8), h=head(8)),
        (IMAGES,),
    ),
    "a number of a class": (
        lambda: Net(
            lambda n, x, which: n.h(n.b(n.a(x) * n.each(which)[:, :, None, None])),
            a=block(3, 8), b=block(8, 8), each=nn.Embedding(5, 8), h=head(8),
        ),
        (IMAGES, CLASSES),
    ),
    "a mask": (
        lambda: Net(lambda n, x, mask: n.h(n.b(n.a(x) * mask)), a=block(3, 8), b=block(8, 8), h=head(8)),
        (IMAGES, IMAGES[:, :1] > 0),
    ),
    "bytes": (
        lambda: Net(lambda n, x: n.h(n.b(n.a(x.permute(0, 3, 1, 2) / 255))), a=block(3, 8), b=block(8, 8), h=head(8)),
        ((50 * IMAGES + 128).to(torch.uint8).permute(0, 2, 3, 1),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_numbers_that_are_not_float32_go_through_torch_and_the_convolutions_stay_native(name: str) -> None:
    torch.manual_seed(0)
    make, given = KINDS[name]
    network = sanp.gate(make(), tuple(each[:1] for each in given)).eval()
    fast = sanp.compile(network, tuple(each[:2] for each in given))
    native = [row.layer for row in fast.plan.rows if row.where == "native" and row.how == "gate"]
    assert native == (["net.a.0", "net.c.0"] if name == "double precision inside" else ["net.a.0", "net.b.0"])
    assert fast.plan.reasons() == "numbers that are not float32"
    for count in (1, 2, 6):
        batch = tuple(each[:count] for each in given)
        with torch.no_grad():
            assert error(fast(*batch), network(*batch)) < 1e-5


def test_what_stands_beside_the_tensors_of_a_result_is_given_as_it_was() -> None:
    def run(n: Net, x: Tensor) -> dict[str, Any]:
        y = n.a(x)
        return {"maps": (y, None), "logits": n.h(y), "kind": "small", "classes": 4}

    net = Net(run, a=block(3, 8), h=head(8)).eval()
    fast = sanp.compile(net, IMAGES[:1])
    assert fast.plan.native
    with torch.no_grad():
        given, expected = fast(IMAGES), net(IMAGES)
    assert given["maps"][1] is None and (given["kind"], given["classes"]) == ("small", 4)
    assert error(given["maps"][0], expected["maps"][0]) < 1e-5 and error(given["logits"], expected["logits"]) < 1e-5
    counted = Net(lambda n, x: (n.h(n.a(x)), len(x)), a=block(3, 8), h=head(8)).eval()
    assert sanp.compile(counted, IMAGES[:1])(IMAGES)[1] == len(IMAGES)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_network_of_another_precision_runs_in_torch(dtype: torch.dtype) -> None:
    net, images = nn.Sequential(block(3, 8), head(8)).eval().to(dtype), IMAGES.to(dtype)
    fast = sanp.compile(net, images[:1])
    assert fast.plan.rows[0].why == "numbers that are not float32"
    assert torch.equal(fast(images), net(images))
    with pytest.raises(SanpError, match=f"wanted is {dtype}"):
        fast(IMAGES)


def test_a_hook_that_keeps_features_keeps_those_of_the_copy() -> None:
    net = Net(lambda n, x: n.h(n.b(n.a(x)) + n.kept["a"]), a=block(3, 8), b=block(8, 8), h=head(8)).eval()
    net.kept = {}
    net.a.register_forward_hook(lambda module, given, made: net.kept.update(a=made))
    with torch.no_grad():
        net(IMAGES[:2])
        fast = sanp.compile(net, IMAGES[:1])
        assert fast.plan.native
        assert error(fast(IMAGES), net(IMAGES)) < 1e-5


def test_channels_last_costs_nothing_of_the_plan() -> None:
    net = nn.Sequential(block(3, 8), nn.MaxPool2d(2), block(8, 8), head(8)).eval()
    last = sanp.compile(net.to(memory_format=torch.channels_last), IMAGES.to(memory_format=torch.channels_last))
    assert all(row.where == "native" for row in last.plan.rows)
    assert error(last(IMAGES), net(IMAGES).detach()) < 1e-5


@ONNX
def test_every_output_of_a_masked_file_is_checked(tmp_path: Path) -> None:
    right = Net(lambda n, x: (n.h(n.b(y := n.a(x))), y.mean((2, 3))), a=block(3, 8), b=block(8, 8), h=head(8)).eval()
    assert sanp.export(right, tmp_path / "m.onnx", IMAGES[:1], dynamic=False).exists()
    wrong = Net(lambda n, x: (n.h(n.a(x)), torch.rand(len(x), 2)), a=block(3, 8), h=head(8)).eval()
    with pytest.raises(SanpError, match="another result"):
        sanp.export(wrong, tmp_path / "random.onnx", IMAGES[:1], dynamic=False)
    assert not (tmp_path / "random.onnx").exists()


def test_a_parameter_that_is_named_like_a_threshold_is_saved(tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.threshold = nn.Parameter(torch.zeros(8, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x - self.threshold

    def make() -> nn.Module:
        return Net(lambda n, x: n.h(n.spm(n.a(x))), a=block(3, 8), spm=Own(), h=head(8)).eval()

    for network in (make(), gated(make())):
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if name.endswith("spm.threshold"):
                    parameter.fill_(0.7)
        sanp.save(network, tmp_path / "m.safetensors")
        loaded = sanp.load(tmp_path / "m.safetensors", make()).eval()
        assert torch.equal(loaded(IMAGES), network(IMAGES))
