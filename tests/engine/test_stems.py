"""Networks that begin with a 7x7 window, a pooling or an excitation, or have them where nobody expects them."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.engine.agreement import disagreement, varied_batch
from sanp.engine.library import Unavailable, native_library
from tests.networks.parts import Net

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


def unit(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, act: nn.Module | None = None) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), act or nn.ReLU())


def two_stems() -> nn.Module:
    def forward(n: Net, x: Tensor) -> Tensor:
        return n.head(F.max_pool2d(torch.cat([n.a(x), n.b(x)], 1), 3, 2, ceil_mode=True)).mean((2, 3))

    return Net(forward, a=unit(3, 12, 7, 2), b=unit(3, 9, 7, 2), head=unit(21, 10))


def deep_inside() -> nn.Module:
    def forward(n: Net, x: Tensor) -> Tensor:
        y = n.first(x)
        return n.head(n.wide(y) + F.avg_pool2d(n.side(y), 2)).flatten(1)

    return Net(forward, first=unit(3, 16), wide=unit(16, 20, 7, 2), side=unit(16, 20, 1), head=unit(20, 6, 3, 2))


def pooled_negatives() -> nn.Module:
    def forward(n: Net, x: Tensor) -> Tensor:
        return n.head(F.max_pool2d(-n.stem(x[..., :61, :53]) - 1, 3, 2, 1))

    return Net(forward, stem=unit(3, 13, 7, 2, nn.ELU()), head=unit(13, 6))


def excited() -> nn.Module:
    def forward(n: Net, x: Tensor) -> Tensor:
        y = n.stem(x)
        excitation = F.hardsigmoid(n.up(F.silu(n.down(y.mean((2, 3), keepdim=True)))))
        return n.head(y * excitation).mean((2, 3))

    return Net(forward, stem=unit(3, 24, 5, 2), down=nn.Conv2d(24, 6, 1), up=nn.Conv2d(6, 24, 1), head=unit(24, 12, 1))


def attention_over_pixels() -> nn.Module:
    def forward(n: Net, x: Tensor) -> Tensor:
        y = n.stem(x)
        return n.head(y * torch.softmax(n.query(y).flatten(2), -1).view(len(x), 1, 32, 32)).sum((2, 3))

    return Net(forward, stem=unit(3, 18, 7, 2), query=nn.Conv2d(18, 1, 1), head=unit(18, 7, 1))


@pytest.mark.parametrize("threshold", [-1e3, 1.0], ids=["all open", "some closed"])
@pytest.mark.parametrize("make", [two_stems, deep_inside, pooled_negatives, excited, attention_over_pixels])
def test_it_runs_natively_and_agrees_with_torch(make: Callable[[], nn.Module], threshold: float) -> None:
    torch.manual_seed(0)
    image = torch.randn(1, 3, 64, 64)
    net = make().train()
    net(varied_batch(image, 6))
    gated = sanp.gate(net.eval(), image).eval()
    for layer in gated.layers.values():
        layer.spm.saliency.wake(torch.Generator().manual_seed(1))
        layer.spm.threshold.fill_(threshold)
    for tuned in (True, False):  # without tuning, a 7x7 window with stride 2 goes by F(4, 4)
        fast = sanp.compile(gated, image, tune=tuned)
        assert fast.plan.native_share == 1.0
        assert [disagreement(fast, gated, varied_batch(image, samples)) for samples in (1, 2, 4)] == [None] * 3
