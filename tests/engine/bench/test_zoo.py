"""The gates that benchmarks give to untrained networks of other zoos."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sanp
from sanp.core.errors import SanpError
from sanp.gating.network import GatedNetwork
from sanp.spm.recording import record


@pytest.fixture(scope="module")
def zoo() -> Any:
    spec = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[3] / "benchmarks" / "zoo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def deep(layers: int = 40, width: int = 16) -> tuple[GatedNetwork, torch.Tensor]:
    """An untrained plain network: a factor above 1 in each layer would overflow."""
    torch.manual_seed(0)
    blocks: list[nn.Module] = []
    for layer in range(layers):
        blocks += [nn.Conv2d(width if layer else 3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    net = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4)).eval()
    images = 5 * torch.randn(8, 3, 8, 8)
    return sanp.gate(net, images[:1], spm=sanp.SPMConfig(most=1.0)).eval(), images


@pytest.mark.parametrize("kept", [1.0, 0.5, 0.3])
def test_gates_of_a_deep_untrained_network_leave_what_was_asked_with_saliencies_near_one(zoo: Any, kept: float) -> None:
    gated, images = deep()
    zoo.close_gates(gated, images, kept)
    with torch.no_grad(), record(gated) as gates:
        outputs = gated(images)
    left = float(gated.cost.per_sample({name: each.decision for name, each in gates.items()}).mean())
    assert abs(left / gated.dense_flops - kept) < 0.015
    assert outputs.isfinite().all() and 1e-3 < float(outputs.abs().max()) < 100
    saliencies = torch.cat([each.saliency.flatten() for each in gates.values()])
    assert abs(float(saliencies.mean()) - 1) < 0.05
    assert float(saliencies.min()) > -1 and float(saliencies.max()) < 3
    if kept < 1:
        assert any(bool((each.decision != each.decision[:1]).any()) for each in gates.values())


def test_a_share_that_no_gates_have_is_refused(zoo: Any) -> None:
    gated, images = deep(4, width=2)  # one channel of two stays open in each layer: at least a quarter
    with pytest.raises(SanpError, match="of the FLOPs are left where"):
        zoo.close_gates(gated, images, 0.1)


def test_outputs_that_are_not_finite_are_refused(zoo: Any) -> None:
    gated, images = deep(4, width=32)
    (last,) = (each for each in gated.modules() if isinstance(each, nn.Linear) and each.out_features == 4)
    with torch.no_grad():
        last.bias[0] = float("inf")
    with pytest.raises(SanpError, match="NaN or infinite"):
        zoo.close_gates(gated, images, 0.5)
