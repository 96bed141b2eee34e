import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from sanp.methods.autopruner import AutoPruner, AutoPrunerConfig, closed_in, in_blocks, rate_of, rate_penalty
from sanp.methods.cutting.cutting import Cutting
from sanp.methods.cutting.ranking import removable_groups
from sanp.methods.parts.code_layer import CodedNetwork, CodeLayer
from sanp.spm.recording import record
from sanp.training.stage import Stage
from sanp.training.task import Task
from tests.conftest import SmallNet
from tests.methods.conftest import task


def test_the_penalty_is_the_cubed_gap_of_each_layer() -> None:
    scales = [torch.tensor([1.0, 0.0, 1.0, 1.0], requires_grad=True), torch.tensor([0.5, 0.5])]
    penalty = rate_penalty(scales, 0.5, 100.0)
    assert penalty.item() == pytest.approx(100 * 0.25 * 0.25**2)
    penalty.backward()
    assert scales[0].grad is not None
    assert scales[0].grad.tolist() == pytest.approx([100 * 0.25 * 2 * 0.25 / 4] * 4)  # reg is a constant


def test_a_code_layer_scales_by_a_sigmoid_of_the_pooled_batch_mean() -> None:
    code = CodeLayer("conv", nn.Identity(), 2, 2, 2)
    with torch.no_grad():
        code.code.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, -4.0]]))
        code.code.bias.zero_()
    code.steepness.fill_(3.0)
    y = torch.zeros(2, 2, 2, 2)
    y[0, 0, 0, 0], y[1, 0, 0, 1], y[:, 1] = 4.0, 2.0, -1.0
    # Channel 0: batch means 2 and 1, their maximum 2, v = 2 · 2 / 2 = 2. Channel 1: relu(-1) = 0, v = 0.
    out = code(y)
    scales = torch.sigmoid(torch.tensor([6.0, 0.0]))
    torch.testing.assert_close(out, y * scales[:, None, None])
    assert code.mean_v.tolist() == pytest.approx([0.2, 0.0])
    code.eval()
    torch.testing.assert_close(code(y), y * torch.sigmoid(3 * code.mean_v)[:, None, None])


def test_without_its_code_layers_the_network_is_as_it_was() -> None:
    net, x = SmallNet().eval(), torch.randn(2, 3, 8, 8)
    before, names = net(x), list(net.state_dict())
    coded = CodedNetwork(net, {"features.0": "features.1"}, x[:1]).eval()
    with record(coded) as gates:
        assert not torch.allclose(coded(x), before)
    assert gates["features.0"].saliency.tolist() == [[0.5] * 16]
    torch.testing.assert_close(copy.deepcopy(coded)(x), coded(x))
    coded.remove_codes()
    torch.testing.assert_close(coded(x), before)
    assert list(net.state_dict()) == names


def test_a_code_layer_starts_as_the_authors_with_ten_times_the_usual_deviation_and_a_bias() -> None:
    torch.manual_seed(0)
    code = CodeLayer("conv", nn.Identity(), 64, 8, 8)
    # n = 64 · 4 · 4 = 1024 inputs: 10 sqrt(2 / 1024) = 0.442, of the weights that v has after the division by n.
    assert (code.code.weight / 1024).std().item() == pytest.approx(0.442, rel=0.01)
    assert 0 < code.code.bias.abs().max().item() <= 1024**-0.5
    still = CodeLayer("conv", nn.Identity(), 64, 8, 8, start=0.0)
    still(torch.ones(2, 64, 8, 8))
    torch.testing.assert_close(still.mean_v, 0.1 * still.code.bias.detach())


def test_reg_follows_the_share_of_open_channels_and_the_square_the_mean_scale() -> None:
    # Two of four are above 0.5, the mean is 0.4. reg = 100 (0.5 - 0.25), times (0.4 - 0.25)².
    scales = [torch.tensor([0.6, 0.6, 0.2, 0.2])]
    assert rate_penalty(scales, 0.25, 100.0).item() == pytest.approx(25 * 0.15**2)


def test_layers_learn_one_after_the_other_or_in_blocks_where_epochs_are_few() -> None:
    paths = ["a", "b", "c", "d"]
    assert in_blocks(paths, 8, None) == [(["a"], 2), (["b"], 2), (["c"], 2), (["d"], 2)]
    assert in_blocks(paths, 2, None) == [(["a", "b"], 1), (["c", "d"], 1)]
    assert in_blocks(paths, 3, 1) == [(paths, 3)]
    assert in_blocks(paths, 0, None) == [(paths, 0)]


def test_a_layer_that_has_learned_keeps_only_its_open_channels_and_one_that_waits_all() -> None:
    code = CodeLayer("conv", nn.Identity(), 2, 1, 1)
    code.learns = False
    y = torch.tensor([3.0, 5.0]).view(1, 2, 1, 1)
    assert code(y).flatten().tolist() == [3.0, 5.0]
    code.opened.copy_(torch.tensor([0.0, 1.0]))
    assert code(y).flatten().tolist() == [0.0, 5.0]


def chain() -> tuple[Cutting, dict[str, torch.Tensor]]:
    """4 and 4 channels by 1x1 at one position: FLOPs (1 + 1) 4 + (4 + 1) 4 + (4 + 1) 2 = 38, to be halved."""
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1), nn.Flatten())
    with torch.no_grad():
        for layer in (net[0], net[1]):
            layer.bias.zero_()  # type: ignore[operator]
    loader = [(torch.ones(1, 1, 1, 1), torch.zeros(1, dtype=torch.long))]
    cutting = Cutting(net, Task(loader=loader, budget="50%"), "autopruner")
    return cutting, removable_groups(cutting.channel_groups)


def test_what_one_layer_keeps_the_next_must_save() -> None:
    cutting, layers = chain()
    first, second = (layers[path].tolist() for path in ("0", "1"))
    rest = {"1": layers["1"]}
    # v is negative for one channel of the first layer: it goes. With 3 and c channels the FLOPs are 2 · 3 + 4 c + 2 (c
    # + 1) = 8 + 6 c, nearest to 19 for c = 2: a rate of a half.
    removed = closed_in(cutting, set(), dict(zip(first, [1.0, -1.0, 2.0, 3.0], strict=True)), rest, 0.5)
    assert removed == {first[1]}
    assert 0.5 <= rate_of(cutting, removed, rest) < 0.75
    # In the last layer the threshold is moved: two channels go, although all v are positive.
    scores = dict(zip(second, [0.4, 0.1, 0.3, 0.2], strict=True))
    assert closed_in(cutting, removed, scores, {}, 0.5) == {first[1], second[1], second[3]}
    # With all v negative one channel would be left, and 2 + 2 c + 2 (c + 1) = 4 + 4 c reaches at most 20, so that the
    # budget is met by 4 channels after it: within its reach, as it is.
    assert closed_in(cutting, set(), dict(zip(first, [-1.0, -2.0, -3.0, -4.0], strict=True)), rest, 0.5) == set(
        first[1:]
    )


def test_the_layers_of_a_network_end_with_rates_of_their_own(trained: dict[str, nn.Module]) -> None:
    names = [stage.name for stage in _run(AutoPruner(), trained["chain"])]
    assert len(names) == 3 and all(name.startswith("code features.") for name in names[:2])
    names = [stage.name for stage in _run(AutoPruner(config=AutoPrunerConfig(blocks=1)), trained["chain"])]
    assert names == ["code", "fine-tune"]


def _run(method: AutoPruner, net: nn.Module) -> Iterator[Stage]:
    for stage in method.stages(net, task()):
        for _ in stage.run():
            pass
        yield stage
