"""Winograd's convolution in training against torch's own, value and both gradients, in double precision."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.training import winograd
from sanp.training.precision import Format
from sanp.training.winograd import Winograd, library
from sanp.training.winograd.library import has_wide, usable

pytestmark = pytest.mark.skipif(not usable(torch.float32), reason="needs AVX2 with FMA and the native library")
FORMS = {
    "fp32 by AVX2": (torch.float32, False, True),
    "fp32 by AVX-512": (torch.float32, True, has_wide(torch.float32)),
    "bf16": (torch.bfloat16, True, usable(torch.bfloat16)),
}
"""format, whether it is AVX-512's form, and whether this processor can run it"""


@pytest.fixture(params=FORMS)
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """The number format; convolutions take the named form for it."""
    found, wide, runs = FORMS[request.param]
    if not runs:
        pytest.skip(f"this processor has no {request.param}")
    for module in (winograd, library):
        monkeypatch.setattr(module, "has_wide", lambda dtype: wide)
    return found


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.015}
"""root mean square of the error, as a share of the exact one's; F(4x4, 3x3) in bf16 has 0.011 to 0.0135"""


def asking_for(dtype: torch.dtype) -> torch.autocast | nullcontext[None]:
    """The context in which a convolution is computed in this format."""
    return torch.autocast("cpu", dtype) if dtype == torch.bfloat16 else nullcontext()


class Counted(Winograd):
    """Counts the convolutions that torch still computes."""

    left = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = super().__torch_function__(func, types, args, kwargs)
        if func is torch.conv2d and "_Convolution" not in names(result):
            self.left += 1
        return result


def names(result: Tensor) -> str:
    """The functions that made a result, two steps back."""
    steps = [result.grad_fn, *(step for step, _ in result.grad_fn.next_functions)] if result.grad_fn else []
    return " ".join(type(step).__name__ for step in steps)


def both(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor]]:
    """Output and gradients by Winograd, and by torch in double precision."""
    gradient = torch.randn(F.conv2d(x, weight, bias, padding=padding).shape).to(dtype)
    found = []
    for double in (False, True):
        operands = [
            None if a is None else a.detach().to(torch.float64 if double else a.dtype).requires_grad_()
            for a in (x, weight, bias)
        ]
        if double:
            y = F.conv2d(operands[0], operands[1], operands[2], padding=padding)
        else:
            with asking_for(dtype), Counted() as mode:
                y = F.conv2d(operands[0], operands[1], operands[2], padding=padding)
            assert mode.left == 0
            assert y.dtype == dtype
        wanted = [a for a in operands if a is not None]
        found.append([y.detach(), *torch.autograd.grad(y, wanted, gradient.to(y.dtype))])
    return found[0], found[1]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("samples", "channels", "out", "height", "width", "padding"),
    [
        (3, 32, 32, 4, 4, 1),
        (2, 64, 32, 30, 30, 1),
        (9, 64, 192, 2, 2, 1),
        (3, 256, 272, 7, 5, 1),
        (5, 48, 80, 9, 14, 0),
        (7, 32, 48, 8, 8, 2),
        (1, 192, 192, 8, 8, 1),
    ],
)
def test_output_and_gradients_are_those_of_the_convolution(
    samples: int, channels: int, out: int, height: int, width: int, padding: int, threads: int, dtype: torch.dtype
) -> None:
    if height < 3 and not library.has_wide(dtype):
        pytest.skip("AVX2 has no tiles of 2x2")
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.randn(samples, channels, height, width).relu()
        weight = torch.randn(out, channels, 3, 3) / (9 * channels) ** 0.5
        ours, exact = both(x, weight, torch.randn(out), padding, dtype)
    finally:
        torch.set_num_threads(before)
    for found, wanted in zip(ours, exact, strict=True):
        assert found.shape == wanted.shape
        assert (found - wanted).norm() < TOLERANCE[dtype] * wanted.norm()


def test_the_layout_of_input_and_kernels_does_not_matter(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, weight = torch.randn(2, 32, 12, 12), torch.randn(48, 32, 3, 3)
    last = torch.channels_last
    with asking_for(dtype), Winograd():
        plain = F.conv2d(x, weight, padding=1)
        other = F.conv2d(x.to(memory_format=last), weight.to(memory_format=last), padding=1)
    assert torch.equal(plain, other)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.Conv2d(16, 16, 3, dilation=2),
        nn.Conv2d(16, 16, 3, groups=2),
        nn.Conv2d(16, 16, 5),
        nn.Conv2d(16, 16, (3, 1)),
        nn.Conv2d(16, 16, 3, padding=(0, 1)),
        nn.Conv2d(16, 16, 3, padding="same"),
        nn.Conv2d(16, 24, 3),
        nn.Conv2d(16, 16, 3, padding=3),
        nn.Conv2d(16, 16, 3, dtype=torch.float64),
    ],
)
def test_what_it_does_not_serve_is_left_to_torch(layer: nn.Conv2d) -> None:
    x = torch.randn(2, 16, 9, 9, dtype=layer.weight.dtype)
    with Counted() as mode:
        y = layer(x)
    assert mode.left == 1
    assert torch.equal(y, layer(x))


@pytest.mark.parametrize("side", [1, 2])
def test_maps_smaller_than_half_a_tile_are_left_to_torch(dtype: torch.dtype, side: int) -> None:
    least = 2 if library.has_wide(dtype) else 3  # AVX-512 has tiles of 2x2 too
    with asking_for(dtype), Counted() as mode:
        nn.Conv2d(32, 32, 3, padding=1)(torch.randn(2, 32, side, side))
    assert mode.left == (side < least)


def test_the_same_twice_to_the_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    x = torch.randn(9, 32, 20, 20)
    weight = torch.randn(32, 32, 3, 3, requires_grad=True)
    with asking_for(dtype), Winograd():
        first, second = (torch.autograd.grad(F.conv2d(x, weight).square().sum(), weight)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.skipif(not usable(torch.bfloat16), reason="needs AVX-512 with bf16")
def test_a_gated_network_is_trained_in_bf16_as_precisely_as_by_torch() -> None:
    """Gradients of all weights, by Winograd and by torch's own bf16, against float32."""
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()
    )
    net = sanp.gate(
        nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)), torch.zeros(1, 3, 16, 16)
    )
    x, y = torch.randn(32, 3, 16, 16), torch.randint(10, (32,))
    weights = [weight for weight in net.parameters() if weight.dim() == 4]

    def gradients(format: Format) -> Tensor:
        torch.manual_seed(4)  # the noise of the gates
        with format.autocast():
            loss = F.cross_entropy(net(format.place(x)).float(), y)
        return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, weights)])

    wanted = gradients(Format(net, "fp32", exact=True))
    ours, torchs = (gradients(Format(net, "bf16", exact=exact)) - wanted for exact in (False, True))
    assert not torch.equal(ours, torchs)
    assert ours.norm() < 2 * torchs.norm()
