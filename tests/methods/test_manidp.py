"""ManiDP's rules with numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn

from sanp.core.errors import SanpError
from sanp.methods.manidp import (
    ManiDP,
    ManiDPConfig,
    ManifoldTerm,
    easiness,
    loss_of_each,
    similarity_gap,
    threshold_at,
)
from sanp.methods.parts.pooled_features import PooledFeatures
from sanp.spm.module import SPMConfig
from sanp.spm.recording import record
from sanp.training.term import Forward
from tests.conftest import SmallNet


def test_only_images_below_the_threshold_are_pushed_and_the_easiest_most() -> None:
    found = easiness(torch.tensor([0.0, 0.5, 1.0, 3.0]), 1.0)
    assert found.tolist() == [1.0, 0.5, 0.0, 0.0]


def test_similarities_are_compared_between_all_pairs_of_images() -> None:
    """Saliencies of two images at a right angle, features at 45 degrees: the two pairs i != j differ by cos 45."""
    saliency = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    features = torch.tensor([[1.0, 0.0], [5.0, 5.0]])
    assert similarity_gap(saliency, features).item() == pytest.approx(2 * 0.5 / 4)


@pytest.mark.parametrize(
    ("density", "wanted"), [(0.25, 4.0), (0.26, 3.0), (0.5, 3.0), (0.75, 2.0), (1.0, 0.0), (0.0, 4.0)]
)
def test_the_threshold_is_the_smallest_mean_saliency_that_stays(density: float, wanted: float) -> None:
    found = threshold_at(torch.tensor([1.0, 4.0, 2.0, 3.0]), density)
    assert found == pytest.approx(wanted, rel=1e-6) and (found < wanted or wanted == 0)


def test_a_saliency_that_is_the_threshold_is_open_and_one_of_zero_is_not() -> None:
    """Of 1, 2, 2, 2 for every image two are to stay: all three that are alike do, as nothing is below the threshold."""
    found = [float(s) > threshold_at(torch.tensor([1.0, 2.0, 2.0, 2.0]), 0.5) for s in torch.tensor([1.0, 2.0, 2.0])]
    assert found == [False, True, True]
    assert threshold_at(torch.tensor([0.0, 0.0, 0.0, 2.0]), 0.5) == 0.0


def test_the_defaults_are_what_the_authors_give_for_cifar_10() -> None:
    """Their command has λ = 0.005 and γ = 1; their predictors have C_out / 2 hidden units, and C_out below 80."""
    config = ManiDPConfig()
    assert (config.sparsity, config.similarity, config.easy) == (5e-3, 1.0, 0.5)
    assert [config.reduction_for(channels) for channels in (16, 79, 80, 192)] == [1, 1, 2, 2]
    assert ManiDPConfig(reduction=4).reduction_for(16) == 4
    layers = ManiDP().gate(SmallNet(), torch.zeros(1, 3, 8, 8), spm=SPMConfig()).layers.values()
    assert [layer.spm.saliency.w1.out_features for layer in layers] == [16, 16, 16]  # type: ignore[union-attr]


def test_no_gradient_flows_through_a_decision() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    gated = ManiDP().gate(SmallNet(), x[:1], spm=SPMConfig()).train()
    layer = next(iter(gated.layers.values()))
    layer.spm.level = 0.9
    with torch.no_grad():
        layer.spm.saliency.w2.bias.copy_(torch.linspace(0.0, 2.0, 16))  # type: ignore[union-attr, operator]
    gates = layer.spm(x)
    assert gates.decision.sum(1).tolist() == [9.0] * 4  # biases from 14 / 15 on
    (gradient,) = torch.autograd.grad(gates.scale.sum(), gates.saliency)
    assert torch.equal(gradient, gates.decision)


def test_the_loss_has_both_parts_and_the_features_are_those_before_the_gates() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % 4
    config = ManiDPConfig(sparsity=0.3, similarity=2.0, easy=1.5)
    gated = ManiDP(config=config).gate(SmallNet(), x[:1], spm=SPMConfig(start=1.0)).train()
    features = PooledFeatures(gated)
    term = ManifoldTerm(gated, features, 0.5, config)
    with features.collecting(), record(gated) as gates:
        output = gated(x)
        pooled = {name: calls[0] for name, calls in features.of.items()}
        made = term.contribute(Forward(output, y, gates, 0.5))
        assert features.of == {}
    first = next(iter(gated.layers.values()))
    gated.eval()
    expected = torch.relu(nn.functional.batch_norm(first.conv(x), None, None, first.norm.weight, first.norm.bias, True))  # type: ignore[union-attr, operator]
    torch.testing.assert_close(pooled[first.name], expected.mean((2, 3)), rtol=1e-4, atol=1e-5)
    losses = nn.functional.cross_entropy(output, y, reduction="none")
    weights = (1 - losses / (1.5 * losses.mean())).clamp(min=0)
    sparse = sum((weights * gate.saliency.relu().mean(1)).mean() for gate in gates.values())
    alike = sum(similarity_gap(gate.saliency.relu(), pooled[name]) for name, gate in gates.items())
    assert made.loss is not None
    wanted = torch.as_tensor(0.3 * sparse + 2.0 * alike).item()
    assert made.loss.item() == pytest.approx(wanted, rel=1e-5)
    assert made.target == pytest.approx(0.75)  # half a cosine from 1 to 0.5, half way


def test_means_run_over_the_steps_and_come_back_from_a_checkpoint() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % 4
    gated = ManiDP().gate(SmallNet(), x[:1], spm=SPMConfig(start=1.0)).train()
    term = ManifoldTerm(gated, PooledFeatures(gated), 0.5, ManiDPConfig())
    seen = []
    for _ in range(2):
        with record(gated) as gates:
            output = gated(x)
        term.contribute(Forward(output, y, gates, 0.0))
        seen.append(nn.functional.cross_entropy(output, y).item())
        x = x + 1
    assert term.loss == pytest.approx((seen[0] + seen[1]) / 2)
    other = ManifoldTerm(gated, PooledFeatures(gated), 0.5, ManiDPConfig())
    other.restore(term.state())
    assert other.step == 2 and other.loss == term.loss and other.state() == term.state()
    assert all(torch.equal(other.means[name], mean) for name, mean in term.means.items())


def test_thresholds_are_set_every_ten_steps_and_more_often_where_there_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % 4
    gated = ManiDP().gate(SmallNet(), x[:1], spm=SPMConfig(start=1.0)).train()
    with record(gated) as gates:
        output = gated(x)
    now, found = [0], []
    monkeypatch.setattr("sanp.methods.manidp.set_for_target", lambda *given: found.append(now[0]))
    for steps, wanted in ((5000, [0, 10, 20, 30]), (100, [0, 2, 4, 6])):
        term = ManifoldTerm(gated, PooledFeatures(gated), 0.5, ManiDPConfig())
        found.clear()
        for now[0] in range(wanted[-1] + 1):
            term.contribute(Forward(output, y, gates, now[0] / steps))
        assert found == wanted


def test_a_task_without_classes_is_refused() -> None:
    with pytest.raises(SanpError, match="it needs classes"):
        loss_of_each(Forward(torch.zeros(2, 3), torch.zeros(2, 3), {}, 0.0))
    assert loss_of_each(Forward(torch.zeros(2, 3), torch.tensor([0, 1]), {}, 0.0)).tolist() == pytest.approx(
        [math.log(3)] * 2
    )
