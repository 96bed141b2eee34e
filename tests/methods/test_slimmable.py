"""Slimmable networks: the ranking, nested widths, the sandwich rule, and batch norm statistics for each width."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sanp
from sanp.evaluation import evaluate
from sanp.gating.network import GatedNetwork
from sanp.methods import METHODS
from sanp.methods.parts.density import set_density
from sanp.methods.parts.ranked_width import KEPT_WIDTHS, Width
from sanp.methods.slimmable import drawn_widths, keep_norms, sandwich_stage, width_of
from sanp.training.watching import run_stages
from tests.conftest import SmallNet, coloured_squares
from tests.methods.conftest import QUICK, task

IMAGES = coloured_squares(24)[0]


def gated(net: nn.Module | None = None) -> GatedNetwork:
    return METHODS["slimmable"].gate(net or SmallNet(), IMAGES[:1], spm=sanp.SPMConfig())  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def slim(trained: dict[str, nn.Module]) -> GatedNetwork:
    """Trained for 30 to 70 %."""
    found = run_stages(METHODS["slimmable"].stages(trained["chain"], task("30%..70%")))
    assert isinstance(found, GatedNetwork)
    return found.eval()


def opened(network: GatedNetwork, layer: str) -> torch.Tensor:
    with torch.no_grad(), sanp.record(network) as gates:
        network(IMAGES)
    return gates[layer].decision


def test_channels_are_ranked_by_the_sum_of_their_kernels() -> None:
    net = SmallNet(width=4)
    sums = torch.tensor([2.0, 5.0, 1.0, 5.0])
    with torch.no_grad():
        net.features[0].weight.copy_((sums / 27)[:, None, None, None].expand(4, 3, 3, 3) * torch.tensor(-1.0))
    network = gated(net).eval()
    for width, wanted in ((0.25, [0, 1, 0, 0]), (0.5, [0, 1, 0, 1]), (0.6, [1, 1, 0, 1]), (1.0, [1, 1, 1, 1])):
        set_density(network, width)
        assert opened(network, "features.0").tolist() == [wanted] * len(IMAGES)


def test_a_width_holds_all_smaller_ones_in_every_layer() -> None:
    network = gated().eval()
    for layer in network.layers:
        before = torch.zeros(16)
        for width in (0.1, 0.33, 0.5, 0.9):
            set_density(network, width)
            now = opened(network, layer)[0]
            assert int(now.sum()) == math.ceil(16 * width) and bool((now >= before).all())
            before = now


def test_a_step_has_the_largest_the_smallest_and_random_widths() -> None:
    draws = [drawn_widths(0.4, 0.8, 2, step) for step in range(200)]
    assert all(draw[:2] == [0.8, 0.4] and len(draw) == 4 for draw in draws)
    between = torch.tensor([draw[2:] for draw in draws])
    assert 0.4 <= float(between.min()) < 0.42 and 0.78 < float(between.max()) <= 0.8
    assert float(between.mean()) == pytest.approx(0.6, abs=0.02)
    assert drawn_widths(0.4, 0.8, 2, 7) == draws[7]


def test_the_loss_of_a_step_is_the_tasks_at_the_largest_width_and_the_distance_from_it_at_the_others() -> None:
    network = gated(SmallNet().eval())
    images, labels = coloured_squares(32, seed=5)
    given = replace(task("50%"), loader=[(images, labels)], config=replace(QUICK, distill=0.0, joint_epochs=1))
    stage = sandwich_stage(network, given, 0.5, 1.0, 0)
    network.eval()  # statistics of the batch would be those of each forward
    found = stage._step_loss(images, labels, 0.0)
    logits = {}
    for width in (1.0, 0.5):
        set_density(network, width)
        logits[width] = network(images)
    task_loss = F.cross_entropy(logits[1.0], labels, label_smoothing=QUICK.label_smoothing)
    soft = [F.log_softmax(logits[width] / QUICK.temperature, 1) for width in (0.5, 1.0)]
    apart = QUICK.temperature**2 * (soft[1].exp() * (soft[1] - soft[0])).sum(1).mean()
    assert found.loss.item() == pytest.approx((task_loss + apart).item(), rel=1e-5)
    assert found.shown == pytest.approx(task_loss.item(), rel=1e-5)
    found.loss.backward()
    task_alone = torch.autograd.grad(task_loss, network.net.classifier.weight, retain_graph=True)[0]  # type: ignore[union-attr, arg-type]
    pulled = torch.autograd.grad(
        QUICK.temperature**2 * (soft[1].detach().exp() * (soft[1].detach() - soft[0])).sum(1).mean(),
        network.net.classifier.weight,  # type: ignore[union-attr, arg-type]
    )[0]
    torch.testing.assert_close(network.net.classifier.weight.grad, task_alone + pulled)  # type: ignore[union-attr]


def test_each_width_has_batch_norm_statistics_of_its_own() -> None:
    """Those of a kept width are the plain means over the batches; between two widths they are interpolated."""
    network = gated().eval()
    keep_norms(network, task("50%"), 0.5, 1.0)
    norm, layer = network.layers["features.3"].norm, network.layers["features.3"].spm
    assert isinstance(norm, nn.BatchNorm2d) and isinstance(layer.binarize, Width)
    kept = {}
    for width in (0.5, 0.625):
        set_density(network, width)
        features: list[torch.Tensor] = []
        conv = network.layers["features.3"].conv
        hook = conv.register_forward_hook(lambda *call, into=features: into.append(call[2]))
        network.train()  # norms before this layer use the batch, as they did when the statistics were estimated
        with torch.no_grad():
            for x, _ in list(task("50%").loader)[: QUICK.norm_batches]:
                network(x)
        hook.remove()
        kept[width] = torch.stack([each.mean((0, 2, 3)) for each in features]).mean(0)
        network.eval()
        for each in network.layers.values():
            each.spm.level = 1 - width
        torch.testing.assert_close(norm.running_mean, kept[width], rtol=1e-3, atol=1e-4)
    for each in network.layers.values():
        each.spm.level = 1 - 0.5625
    torch.testing.assert_close(norm.running_mean, (kept[0.5] + kept[0.625]) / 2, rtol=1e-3, atol=1e-4)


def test_budgets_of_the_range_need_no_images(slim: GatedNetwork) -> None:
    seen = []
    for budget in (0.3, 0.45, 0.7):
        assert slim.set_budget(budget) == pytest.approx(budget)
        report = evaluate(slim, task().loader, progress=False)
        seen.append(report.kept)
        assert report.kept == pytest.approx(budget, abs=1 / 16) and report.accuracy > 0.8
        assert float(report.per_sample.std()) == 0  # every image costs the same
    assert seen == sorted(seen)
    with pytest.raises(sanp.SanpError, match=r"above 30\.0% to 70\.0%"):
        slim.set_budget(0.9, IMAGES)


def test_a_compiled_one_is_compiled_again_for_another_width(slim: GatedNetwork) -> None:
    slim.set_budget(0.5)
    fast = sanp.compile(slim, IMAGES[:1], tune=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(IMAGES), slim(IMAGES), rtol=1e-4, atol=1e-5)
    with pytest.raises(sanp.SanpError, match="number of channels that is fixed"):
        fast.set_budget(0.6)


def test_its_file_has_all_widths(slim: GatedNetwork, tmp_path: Path) -> None:
    slim.set_budget(0.3)
    sanp.save(slim, tmp_path / "slim.safetensors")
    loaded = sanp.load(tmp_path / "slim.safetensors", SmallNet()).eval()
    assert isinstance(loaded, GatedNetwork)
    for budget in (0.3, 0.62, 0.7):
        for network in (slim, loaded):
            network.set_budget(budget)
        with torch.no_grad():
            torch.testing.assert_close(slim(IMAGES), loaded(IMAGES), rtol=1e-5, atol=1e-5)


def test_a_single_budget_is_the_smallest_width_and_the_whole_network_the_largest() -> None:
    network = gated()
    stages = METHODS["slimmable"].train(network, task("50%"))  # type: ignore[attr-defined]
    next(stages)
    assert network.trained is not None and (network.trained.low, network.trained.high) == (0.5, 1.0)
    assert KEPT_WIDTHS == 5


def test_the_widths_of_a_range_reach_from_below_its_smallest_budget_to_above_its_largest() -> None:
    """64 · (27 + 1) a + 16 · (9 a + 1) b + 16 · (9 b + 1) c FLOPs with a = b = c channels of 16."""
    network = gated()

    def cost(width: int) -> float:
        return (64 * 28 * width + 2 * 16 * (9 * width + 1) * width) / network.dense_flops

    assert cost(16) == 1
    assert width_of(network, 0.3) == max(n for n in range(1, 17) if cost(n) <= 0.3) / 16
    assert width_of(network, 0.3, above=True) == min(n for n in range(1, 17) if cost(n) >= 0.3) / 16
    assert width_of(network, cost(7)) == width_of(network, cost(7), above=True) == 7 / 16
    assert width_of(network, 1.0, above=True) == 1
