"""Networks that keep their channels last for a while: layer norms, and linear layers at every pixel."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.engine.agreement import disagreement

IMAGES = torch.randn(5, 3, 17, 13, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """ConvNeXt's: depthwise, layer norm, two linear layers with GELU between them, a scale for each channel."""

    def __init__(self, channels: int, act: Callable[[Tensor], Tensor] = F.gelu) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.expand, self.project = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.linspace(-1, 1, channels))
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.project(self.act(self.expand(y)))
        return x + y.permute(0, 3, 1, 2)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ByPixel(nn.Module):
    """A linear layer by pixel whose result has several readers, and a mean over positions with the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.mix(F.relu(self.conv(x)).permute(0, 2, 3, 1)) + 0.5
        z = y * torch.arange(6.0) + F.silu(y)
        return self.head(z.mean((1, 2))), y.permute(0, 3, 1, 2)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "convnext": lambda: nn.Sequential(
        nn.Conv2d(3, 12, 4, 4), LayerNorm2d(12), Block(12), LayerNorm2d(12), nn.Conv2d(12, 16, 2, 2),
        Block(16, F.silu), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 4),
    ),
    "by pixel": ByPixel,
}  # fmt: skip


@pytest.mark.parametrize("kept", [None, "60%"])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_of_it_runs_natively_and_is_right(name: str, kept: str | None) -> None:
    torch.manual_seed(0)
    net = NETWORKS[name]().eval()
    gated = sanp.gate(net, IMAGES[:1]).eval()
    if kept is not None:
        gated.set_budget(kept, IMAGES)
    for network in (net, gated):
        fast = sanp.compile(network, IMAGES[:2])
        assert fast.plan.native, str(fast.plan)
        assert disagreement(fast, network, IMAGES) is None


def test_a_norm_over_whole_maps_runs_in_torch() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LayerNorm([4, 15, 11]), nn.Conv2d(4, 4, 3)).eval()
    fast = sanp.compile(net, IMAGES[:1])
    assert [row.how for row in fast.plan if row.where == "torch"] == ["native_layer_norm"]
    assert torch.allclose(fast(IMAGES), net(IMAGES), atol=1e-5)
