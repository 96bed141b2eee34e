"""Networks of every method with gates: native where the library knows the gate, in torch with a reason elsewhere."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.engine import compile
from sanp.engine.library import Unavailable, native_library
from sanp.methods import METHODS
from sanp.methods.parts.gating_method import Gating
from sanp.methods.parts.pixel_gate import PixelGatedNetwork
from sanp.spm.module import SPMConfig
from tests.conftest import SmallNet

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)

IN_TORCH = {"rnp": "the gate", "d2nn": "the gate"}
GATING = [name for name, method in METHODS.items() if isinstance(method, Gating)]

pytestmark = pytest.mark.filterwarnings("ignore::sanp.core.errors.SlowWarning")  # some run in torch


@pytest.mark.parametrize("name", GATING)
def test_a_method_s_network_gives_the_same_outputs(name: str) -> None:
    torch.manual_seed(0)
    images = torch.randn(24, 3, 16, 16)
    gated = METHODS[name].gate(SmallNet(width=16).eval(), images[:1], spm=SPMConfig()).eval()
    for parameter in gated.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    gated.set_budget(0.5, images)
    reasons = assert_same(gated, images)
    if name in IN_TORCH:
        assert IN_TORCH[name] in reasons
    else:
        assert reasons == ""


def assert_same(network: nn.Module, images: Tensor) -> str:
    """Compiles and compares; gives the reasons of what runs in torch."""
    fast = compile(network, images[:4])
    with torch.no_grad():
        expected = network(images[:8])
    assert float((fast(images[:8]) - expected).abs().max()) <= 1e-4 * float(expected.abs().max())
    return "; ".join(row.why for row in fast.plan if row.where == "torch")


def test_channel_gating_gives_the_same_outputs() -> None:
    torch.manual_seed(0)
    images = torch.randn(8, 3, 16, 16)
    network = PixelGatedNetwork(SmallNet(width=16).eval(), images[:1], groups=4).eval()
    reasons = assert_same(network, images)
    assert "numbers that are not float32" in reasons


def test_a_gate_behind_a_functional_batch_norm_runs_in_torch_and_says_why() -> None:
    class Outside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            y = F.batch_norm(y, self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias)
            return self.last(F.relu(y)).mean((2, 3))

    torch.manual_seed(0)
    images = torch.randn(24, 3, 16, 16)
    gated = sanp.gate(Outside().eval(), images[:1]).eval()
    assert gated.layers["conv"].norm_outside
    gated.set_budget(0.6, images)
    assert "a gate that waits for a batch norm outside its module" in assert_same(gated, images)
