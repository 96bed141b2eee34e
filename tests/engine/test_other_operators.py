"""Operators that few networks have run natively: sizes, orders, norms and sums of all kinds, beside torch."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from tests.engine.networks import assert_same, gated_network, trained_like


class Around(nn.Module):
    """Two convolutions, and something between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] | nn.Module, channels: int = 12, after: int = 12) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        self.between = between
        self.second = nn.Conv2d(after, 7, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.between(F.relu(self.first(x))))
        return y


def instance_then(x: Tensor) -> Tensor:
    return F.relu(F.instance_norm(x))


class Attention(nn.Module):
    """Branches that are weighed by a softmax over them, as selective kernels have it."""

    def forward(self, x: Tensor) -> Tensor:
        both = torch.stack([x, x.flip(3)], 1)  # (N, 2, C, H, W)
        weights = both.sum(1).mean((2, 3)).reshape(len(x), 2, -1).softmax(1)  # (N, 2, C / 2)
        return (both * weights.repeat(1, 1, 2)[:, :, :, None, None]).sum(1)


class Unpooled(nn.Module):
    """Numbers put back to where the largest of a window was."""

    def __init__(self, *window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        y, places = F.max_pool2d(x, *self.window, return_indices=True)
        return F.max_unpool2d(2 * y, places, *self.window, output_size=x.shape[2:])


def spatial(x: Tensor) -> Tensor:
    """Weights for each pixel from the mean and the maximum over the channels, as CBAM has it."""
    return x * torch.sigmoid(x.mean(1, keepdim=True) + x.max(1, keepdim=True)[0])


def lowest_around(x: Tensor) -> Tensor:
    """The padding of TensorFlow's pooling."""
    return F.max_pool2d(F.pad(x, (0, 1, 1, 0), value=-torch.inf), 3, 2)


def beside_coordinates(x: Tensor) -> Tensor:
    """Rows and columns as two more channels, repeated for each sample."""
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 10), indexing="ij")
    return torch.cat([x, torch.stack([rows, columns]).repeat(len(x), 1, 1, 1)], 1)


def as_sequences(x: Tensor) -> Tensor:
    longer = F.conv_transpose1d(x.flatten(2), CODES[0, :, :4, :3], stride=2, groups=3)
    return longer[:, :, :80].reshape(x.shape)


CODES = torch.randn(1, 12, 8, 10, generator=torch.Generator().manual_seed(7))
"""a number for each place of a map"""

BETWEEN: dict[str, tuple[Callable[[Tensor], Tensor] | nn.Module, int]] = {
    "bilinear": (lambda x: F.interpolate(x, size=(13, 17), mode="bilinear"), 12),
    "bilinear with corners": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), 12),
    "smaller, bilinear": (lambda x: F.interpolate(x, size=(3, 5), mode="bilinear"), 12),
    "nearest by a fraction": (lambda x: F.interpolate(x, size=(11, 13), mode="nearest"), 12),
    "mirrored edges": (lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"), 12),
    "repeated edges": (lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"), 12),
    "cut off": (lambda x: F.pad(x[:, :, 1:], (0, -2, -1, 2)), 12),
    "shuffled pixels": (lambda x: F.pixel_shuffle(x, 2), 3),
    "turned": (lambda x: x.transpose(1, 2).contiguous(), 8),
    "joined along rows": (lambda x: torch.cat([x, x.flip(2)[:, :, :3]], 2), 12),
    "zeros beside": (lambda x: torch.cat([x, torch.zeros(len(x), 2, *x.shape[2:])], 1), 14),
    "mean of a stack": (lambda x: torch.stack([x, x.sigmoid(), -x]).mean(0), 12),
    "sum of a stack": (lambda x: torch.stack([x, x.tanh()], 1).sum(1), 12),
    "differences of shapes": (lambda x: x - x.mean((2, 3), keepdim=True) * x.amax(1, keepdim=True), 12),
    "quotient": (lambda x: x / (1 + x.mean(1, keepdim=True)), 12),
    "powers": (lambda x: (x + 0.1).pow(1.5) + (x + 1).sqrt() + x.pow(2), 12),
    "response norm": (lambda x: F.local_response_norm(x, 5), 12),
    "spatial attention": (spatial, 12),
    "softmax over channels": (lambda x: x.softmax(1), 12),
    "softmax over columns": (lambda x: x.softmax(3), 12),
    "logarithm of a softmax": (lambda x: (90 * x).log_softmax(1), 12),
    "logarithm of a softmax over pixels": (lambda x: x.flatten(2).log_softmax(2).view_as(x), 12),
    "a maximum over columns": (lambda x: x + x.max(3, keepdim=True)[0], 12),
    "selective kernels": (Attention(), 12),
    "instance norm": (nn.InstanceNorm2d(12, affine=True), 12),
    "instance norm and more": (instance_then, 12),
    "group norm": (nn.GroupNorm(3, 12), 12),
    "transposed": (nn.ConvTranspose2d(12, 10, 3, 2, 1, 1), 10),
    "transposed by three": (nn.ConvTranspose2d(12, 10, (2, 5), (3, 3), (0, 1), (1, 0)), 10),
    "transposed in groups": (nn.ConvTranspose2d(12, 8, 4, 2, 1, groups=4), 8),
    "transposed by one": (nn.ConvTranspose2d(12, 10, 3, 1, 2), 10),
    "unpooled": (Unpooled(2), 12),
    "unpooled, windows that overlap": (Unpooled(3, 2, 1), 12),
    "transposed without padding": (nn.ConvTranspose2d(12, 10, 3, 2), 10),
    "transposed and dilated": (nn.ConvTranspose2d(12, 8, (3, 2), (2, 1), dilation=(2, 3), groups=2), 8),
    "transposed sequences": (as_sequences, 12),
    "absolute": (lambda x: (x - 1).abs(), 12),
    "mish": (lambda x: F.mish(4 * x - 1), 12),
    "a gated linear unit": (lambda x: F.glu(x, 1), 6),
    "a gated linear unit over columns": (lambda x: F.glu(x, 3), 12),
    "ELUs of other scales": (lambda x: F.selu(x - 1) + F.celu(x - 1, 1.3), 12),
    "the larger and the smaller": (
        lambda x: torch.maximum(x, x.flip(2)) - torch.minimum(x.mean(1, True), x.flip(3)),
        12,
    ),
    "numbers of one kind": (lambda x: torch.cat([torch.full_like(x[:, :2], 0.3), torch.ones_like(x) - x], 1), 14),
    "codes of places": (lambda x: (x + CODES) * CODES[0, :1] - x / (2 + CODES[0, 0].abs()) + (CODES[:, :1] - x), 12),
    "coordinates": (beside_coordinates, 14),
    "constants over features": (lambda x: CODES / (1 + x) + torch.sub(CODES[0, :, :1, :1], x, alpha=2), 12),
    "another number around": (lambda x: F.pad(x, (1, 2, 0, 1), value=0.7), 12),
    "cut off, another number beside": (lambda x: F.pad(x, (-1, 2, 0, -1), value=-0.7), 12),
    "lowest numbers around": (lowest_around, 12),
    "windows that overlap": (lambda x: x.unfold(2, 4, 2).mean(-1), 12),
    "nearest, from the middle": (lambda x: F.interpolate(x, size=(11, 7), mode="nearest-exact"), 12),
    "unit length of vectors": (lambda x: x * F.normalize(x.mean((2, 3)), dim=1)[:, :, None, None], 12),
    "a distance": (lambda x: x * (x - x.flip(3)).flatten(1).norm(dim=1)[:, None, None, None], 12),
    "a power that is learned": (lambda x: (x + 0.1).pow(CODES[0, 0, 0, :1].abs()), 12),
    "along channels": (lambda x: F.conv3d(x[:, None], torch.ones(2, 1, 4, 1, 1), stride=(2, 1, 1)).flatten(1, 2), 10),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_it_runs_natively_from_end_to_end_as_in_torch(name: str) -> None:
    torch.manual_seed(0)
    between, after = BETWEEN[name]
    x = torch.randn(3, 3, 8, 10)
    gated = gated_network(trained_like(Around(between, after=after), (3, 8, 10)), x[:1], spread=0.3)
    fast = sanp.compile(gated, x[:1])
    assert fast.plan.native_share == 1 and fast.plan.reasons() == ""
    assert_same(fast, gated, x)


def test_a_gate_comes_after_the_instance_norm_of_its_convolution() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 12, 3, padding=1), nn.InstanceNorm2d(12, affine=True), nn.ReLU(), nn.Conv2d(12, 5, 3)]
    net, x = nn.Sequential(*layers).eval(), torch.randn(3, 3, 9, 8)
    with torch.no_grad():
        layers[1].weight.uniform_(0.5, 2)
        layers[1].bias.uniform_(-1, 1)
    gated = gated_network(net, x[:1], spread=0.3)
    fast = sanp.compile(gated, x[:1])
    assert fast.plan.native_share == 1 and fast.plan.reasons() == ""
    assert_same(fast, gated, x)


def test_zeros_beside_single_numbers_are_zeros() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 3, 8, 10)

    def pooled(x: Tensor) -> Tensor:
        return x + F.pad(x.mean((2, 3))[:, 2:], (1, 1))[:, :, None, None]

    gated = gated_network(trained_like(Around(pooled), (3, 8, 10)), x[:1], spread=0.3)
    fast = sanp.compile(gated, x[:1])
    assert fast.plan.reasons() == ""
    assert_same(fast, gated, x)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_it(threads: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8, 10)
    for between, after in BETWEEN.values():
        gated = gated_network(trained_like(Around(between, after=after), (3, 8, 10)), x, spread=0.3)
        assert_same(sanp.compile(gated, x, threads=threads, tune=False), gated, x)


EXPORTED = ["bilinear", "mirrored edges", "turned", "selective kernels", "instance norm", "group norm", "transposed"]
EXPORTED += ["powers", "spatial attention", "cut off", "response norm", "transposed without padding", "mish"]
EXPORTED += ["codes of places", "another number around", "lowest numbers around", "nearest by a fraction"]


@pytest.mark.parametrize("name", EXPORTED)
def test_its_exported_file_skips_and_gives_the_same(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    between, after = BETWEEN[name]
    x = torch.randn(3, 3, 8, 10)
    gated = gated_network(trained_like(Around(between, after=after), (3, 8, 10)), x[:1], spread=0.3)
    path = sanp.export(gated, tmp_path / "m.onnx", x[:1], dynamic=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    with torch.no_grad():
        expected = gated(x)
    assert float((torch.from_numpy(given) - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def test_activations_of_tiny_numbers_keep_their_digits() -> None:
    x = torch.linspace(-1, 1, 2000).reshape(1, 1, 40, 50) * torch.logspace(-8, 0, 20)[:, None, None, None]
    for act in (nn.ELU(), nn.ELU(0.5), nn.Tanh(), nn.SiLU(), nn.GELU()):
        net = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), act).eval()
        nn.init.ones_(net[0].weight)
        wanted = act(x.double())
        fast = sanp.compile(net, x[:1])
        assert fast.plan.native
        gap = (fast(x) - wanted).abs().amax((1, 2, 3)) / wanted.abs().amax((1, 2, 3))
        assert float(gap.max()) < 5e-6, act
