import copy

import pytest
import torch
from torch import nn

from sanp.methods.autopruner import CodedNetwork, CodeLayer, rate_penalty
from sanp.spm.recording import record
from tests.conftest import SmallNet


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
