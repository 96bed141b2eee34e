"""Weights that no image uses are zero afterwards, and nothing else changes."""

from pathlib import Path

import pytest
import torch
from torch import nn

import sanp
from sanp.core.modules import tensors_in
from sanp.gating.unused import zero_unused
from sanp.spm.recording import decisions_of
from sanp.testing.nonzero_count import randomize
from tests.conftest import SmallNet
from tests.networks.architectures import ARCHITECTURES

IMAGES = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(2))
KINDS = [name for name, (_, example) in ARCHITECTURES.items() if isinstance(example, torch.Tensor)]


def network(net: nn.Module, images: torch.Tensor, budget: str = "40%") -> sanp.GatedNetwork:
    gated = sanp.gate(net, images[:1])
    gated.set_budget(budget, images)
    return gated.eval()


@torch.no_grad()
def seen(gated: sanp.GatedNetwork, images: torch.Tensor) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    with sanp.record(gated) as gates:
        output = gated(images)
    return tensors_in(output), decisions_of(gates)


def test_closed_channels_have_no_weights_left_and_the_outputs_stay() -> None:
    gated = network(SmallNet(), IMAGES)
    output, decisions = seen(gated, IMAGES)
    share = zero_unused(gated, [(IMAGES[:40], None), (IMAGES[40:], None)])
    again, same = seen(gated, IMAGES)
    assert torch.allclose(again[0], output[0], atol=1e-6)
    assert all(torch.equal(same[name], made) for name, made in decisions.items())
    first, second = list(gated.layers.values())[:2]
    closed = ~decisions[first.name].bool().any(0)
    assert bool(closed.any()) and bool((~closed).any())
    assert not first.conv.weight[closed].any() and bool(first.conv.weight[~closed].flatten(1).any(1).all())  # type: ignore[operator, index]
    assert not second.conv.weight[:, closed].any()  # type: ignore[index]
    weights = [layer.conv.weight for layer in gated.layers.values()]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    assert share == pytest.approx(zeros / sum(weight.numel() for weight in weights)) and share > 0.3


def test_a_closed_channel_opens_for_no_other_image() -> None:
    gated = network(SmallNet(), IMAGES)
    opened = {name: made.bool().any(0) for name, made in seen(gated, IMAGES)[1].items()}
    zero_unused(gated, IMAGES)
    others = seen(gated, 30 * torch.randn(200, 3, 8, 8))[1]
    assert all(not bool(made.bool().any(0)[~opened[name]].any()) for name, made in others.items())


def test_channels_that_few_images_open_are_closed_if_asked_for() -> None:
    gated = network(SmallNet(), IMAGES)
    shares = {name: made.mean(0) for name, made in seen(gated, IMAGES)[1].items()}
    assert any(bool(((each > 0) & (each <= 0.5)).any()) for each in shares.values())
    zero_unused(gated, [IMAGES[:40], IMAGES[40:]], rarely=0.5)
    first = next(iter(gated.layers.values()))
    opened = seen(gated, IMAGES)[1][first.name].bool()  # what the first layer sees has not changed
    assert torch.equal(opened.any(0), shares[first.name] > 0.5)
    zero_unused(gated, IMAGES, rarely=0.999)
    assert all(bool(made.bool().any()) for made in seen(gated, IMAGES)[1].values())  # no layer is closed altogether
    with pytest.raises(sanp.SanpError, match="from 0 to less than 1"):
        zero_unused(gated, IMAGES, rarely=1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_architectures_keep_their_outputs(name: str) -> None:
    make, example = ARCHITECTURES[name]
    images = torch.randn(6, *example.shape[1:], generator=torch.Generator().manual_seed(3), dtype=example.dtype)
    gated = sanp.gate(make(), example)
    if not gated.layers:
        pytest.skip("nothing is gated")
    randomize(gated, torch.Generator().manual_seed(0))
    gated.eval()
    output, decisions = seen(gated, images)
    zero_unused(gated, images)
    again, same = seen(gated, images)
    for one, other in zip(output, again, strict=True):
        assert torch.allclose(one, other, atol=1e-4 * max(1.0, float(one.abs().max())))
    assert all(torch.equal(same[layer], made) for layer, made in decisions.items())


def test_the_file_is_smaller_and_loads_to_the_same_network(tmp_path: Path) -> None:
    gated = network(sanp.backbones.BACKBONES["m_cifarnet"](num_classes=10), torch.randn(8, 3, 32, 32), "20%")
    sanp.save(gated, tmp_path / "whole.safetensors")
    share = zero_unused(gated, torch.randn(4, 3, 32, 32))
    sanp.save(gated, tmp_path / "small.safetensors")
    whole, small = ((tmp_path / f"{name}.safetensors").stat().st_size for name in ("whole", "small"))
    kernels = sum(layer.conv.weight.numel() for layer in gated.layers.values())
    assert whole - small >= 0.9 * 4 * share * kernels > 0.2 * whole
    again = sanp.load(tmp_path / "small.safetensors", sanp.backbones.BACKBONES["m_cifarnet"](num_classes=10))
    own = gated.state_dict()
    assert all(torch.equal(tensor, own[name]) for name, tensor in again.state_dict().items())


def test_a_file_whose_packed_tensor_does_not_fit_is_refused(tmp_path: Path) -> None:
    gated = network(SmallNet(), IMAGES)
    zero_unused(gated, IMAGES)
    sanp.save(gated, tmp_path / "small.safetensors")
    with pytest.raises(sanp.SanpError, match="give the network it was saved from"):
        sanp.load(tmp_path / "small.safetensors", SmallNet(10))


def test_a_range_of_budgets_and_no_images_are_refused() -> None:
    gated = network(SmallNet(), IMAGES)
    with pytest.raises(sanp.SanpError, match="no images"):
        zero_unused(gated, [])
    gated.set_budget("30%..60%", IMAGES)
    with pytest.raises(sanp.SanpError, match="range of budgets"):
        zero_unused(gated, IMAGES)
