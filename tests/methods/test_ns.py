import pytest
import torch
from torch import nn

from sanp.core.errors import SanpError
from sanp.methods.cutting.cutting import Cutting
from sanp.methods.ns import NS, NSConfig, scale_penalty, scale_scores
from tests.methods.conftest import Residual, task


def test_the_penalty_pulls_every_scale_by_its_sign() -> None:
    scale = torch.tensor([0.5, -2.0, 0.0], requires_grad=True)
    penalty = scale_penalty({"norm": scale})
    penalty.backward()
    assert penalty.item() == 2.5
    assert scale.grad is not None and scale.grad.tolist() == [1.0, -1.0, 0.0]


def test_a_channel_that_two_norms_scale_counts_by_the_larger() -> None:
    net = Residual(width=2)
    with torch.no_grad():
        net.stem_norm.weight.copy_(torch.tensor([0.1, -0.9]))
        net.outer_norm.weight.copy_(torch.tensor([-0.4, 0.2]))
        net.inner_norm.weight.copy_(torch.tensor([0.3, 0.0]))
    cutting = Cutting(net, task(), "ns")
    scales = {path: cutting.module(path).weight for path in ("inner_norm", "outer_norm", "stem_norm")}
    scores = scale_scores(cutting, scales)
    stem, inner = (
        cutting.channel_groups.groups_of(cutting.channel_groups.members[path].outputs).tolist()
        for path in ("stem", "inner")
    )
    found = [scores[group] for group in stem + inner]
    assert found == pytest.approx([0.4, 0.9, 0.3, 0.0])
    assert len(scores) == 4  # down and shortcut have no batch norm


def test_the_weight_is_raised_where_training_is_short() -> None:
    assert NSConfig().weight(66_000) == 1e-4
    assert NSConfig().weight(6_600) == pytest.approx(1e-3)
    assert NSConfig().weight(1.0) == 1e-2
    assert NSConfig(sparsity=3e-4).weight(1.0) == 3e-4


def test_a_network_without_scales_is_refused_before_training() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    with pytest.raises(SanpError, match="this network has none"):
        next(NS().stages(net, task()))


def test_the_paper_s_weights_can_be_given_and_the_penalty_runs_in_pretraining_from_new_weights() -> None:
    assert [NSConfig(sparsity=weight).weight(1.0) for weight in (1e-4, 1e-5)] == [1e-4, 1e-5]
    torch.manual_seed(7)
    net = Residual()
    stage = next(NS(config=NSConfig(sparsity=1e-4, scratch=True)).stages(net, task()))
    assert (stage.name, stage.epochs) == ("sparsity", 4 + 2)  # pretraining, and half of the others
    assert stage.optimizers[0].optimizer.param_groups[0]["initial_lr"] == 0.1
    assert not torch.equal(stage.net.get_parameter("stem.weight"), net.stem.weight)
    # Σ|γ| = 3 · 16 at the start; the penalty is 1e-4 of it.
    x, y = next(iter(task().loader))
    with_penalty = stage._step_loss(x, y, 0.0)
    assert with_penalty.shown is not None
    assert with_penalty.loss.item() - with_penalty.shown == pytest.approx(48e-4, rel=1e-3)
