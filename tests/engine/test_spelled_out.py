"""Activations that are spelled out in several operators become one, and only where they are what they seem."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.engine.library import Unavailable, native_library
from sanp.engine.lowering.spelled_out import with_activations
from sanp.engine.lowering.units import units_of
from sanp.tracing.tracer import trace_forward

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


class Between(nn.Module):
    """A function between two convolutions."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.function = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 4, 1), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(4 * self.first(x)))


SAME = {
    "silu": [lambda x: x * torch.sigmoid(x), lambda x: torch.sigmoid(x).mul_(x)],
    "hardsigmoid": [lambda x: F.relu6(x + 3.0, inplace=True) / 6.0, lambda x: (3 + x).clamp(0, 6) * (1 / 6)],
    "hardswish": [
        lambda x: x * F.relu6(x + 3.0) / 6.0,
        lambda x: x * (F.relu6(x + 3) / 6),
        lambda x: F.hardsigmoid(x) * x,
        lambda x: (F.hardtanh(x + 3, 0, 6) * x).div(6),
    ],
}
OTHER = [
    lambda x: x * torch.sigmoid(2 * x),
    lambda x: x * torch.sigmoid(x) + torch.sigmoid(x),
    lambda x: (lambda s: x * s + s)(torch.sigmoid(x)),
    lambda x: x * F.relu6(x + 2) / 6,
    lambda x: x * F.relu6(x + 3) / 5,
    lambda x: x * x.clamp(0, 6) / 6,
    lambda x: F.hardtanh(x + 3, 0, 5) / 6,
    lambda x: torch.add(x, 3, alpha=2).clamp(0, 6) / 6,
    lambda x: x.flip(1) * torch.sigmoid(x),
]


def _found(net: nn.Module) -> list[str]:
    trace = trace_forward(net.eval(), torch.randn(2, 3, 8, 8))
    return [unit.node.op for unit in with_activations(trace, units_of(trace))]


@pytest.mark.parametrize("name", SAME)
def test_an_activation_in_several_operators_is_one(name: str) -> None:
    for function in SAME[name]:
        net = Between(function)
        assert [op for op in _found(net) if op not in ("convolution", "mul")] == [name]
        x = torch.randn(3, 3, 8, 8)
        fast = sanp.compile(net, x)
        assert "activation" not in [row.how for row in fast.plan]  # it is part of the convolution before it
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", OTHER)
def test_what_only_looks_like_an_activation_stays(function: Callable[[Tensor], Tensor]) -> None:
    net, x = Between(function).eval(), torch.randn(3, 3, 8, 8)
    silu = "silu" if function is OTHER[1] else "none"
    assert [op for op in _found(net) if op in SAME] == ([silu] if silu != "none" else [])
    torch.testing.assert_close(sanp.compile(net, x)(x), net(x), rtol=1e-4, atol=1e-5)
