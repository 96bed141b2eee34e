"""A gated network under PyTorch's own compilers: what comes out is what it puts out by itself, image by image."""

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import sanp
from tests.networks.parts import block, conv

pytestmark = pytest.mark.filterwarnings("ignore")
GENERATOR = torch.Generator().manual_seed(0)
ANY = (({0: torch.export.Dim("batch", min=2)},),)
"""a batch of any size"""
IMAGES, OTHERS = torch.randn(2, 4, 3, 8, 8, generator=GENERATOR)


@pytest.fixture
def gated() -> sanp.GatedNetwork:
    torch.manual_seed(0)
    net = nn.Sequential(block(3, 8), block(8, 8, groups=8), conv(8, 4, 1))
    gated = sanp.gate(net, IMAGES[:1]).eval()
    gated.set_budget("60%", torch.cat((IMAGES, OTHERS)))
    return gated


def decided(network: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad(), sanp.record(network) as gates:
        output = network(images)
    return output, torch.cat([gate.decision for gate in gates.values()], 1)


def test_a_compiled_network_decides_as_the_plain_one(gated: sanp.GatedNetwork) -> None:
    compiled = torch.compile(gated, backend="aot_eager")
    for images in (IMAGES, OTHERS):
        (output, decisions), (expected, plain) = decided(compiled, images), decided(gated, images)
        assert torch.allclose(output, expected, atol=1e-6) and torch.equal(decisions, plain)
    assert 0 < plain.mean() < 1


def test_a_compiled_network_trains_its_gates(gated: sanp.GatedNetwork) -> None:
    compiled = torch.compile(gated.train(), backend="eager")
    budget = sanp.Budget(gated, "60%")
    with sanp.record(compiled) as gates:
        loss = compiled(IMAGES).square().mean()
    (loss + budget.loss(gates)).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in gated.backbone_parameters()[:1])
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in gated.spm_parameters())


@pytest.mark.parametrize("how", ["torch.export", "torch.jit.trace", "make_fx"])
def test_a_captured_network_decides_for_each_new_image(gated: sanp.GatedNetwork, how: str) -> None:
    with torch.no_grad():
        captured = {
            "torch.export": lambda: torch.export.export(gated, (IMAGES,), dynamic_shapes=ANY, strict=False).module(),
            "torch.jit.trace": lambda: torch.jit.trace(gated, IMAGES),
            "make_fx": lambda: make_fx(gated)(IMAGES),
        }[how]()
        assert torch.allclose(captured(OTHERS), gated(OTHERS), atol=1e-6)
        if how != "make_fx":  # which has the size of the batch in it
            assert torch.allclose(captured(OTHERS[:3]), gated(OTHERS[:3]), atol=1e-6)
