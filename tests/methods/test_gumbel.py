import math

import pytest
import torch

from sanp.methods.gumbel import FlopsTarget, Gumbel, GumbelConfig, GumbelGates, gumbel_gates
from sanp.spm.module import SPMConfig
from sanp.spm.recording import record
from sanp.training.controller import BudgetController, ControllerConfig
from sanp.training.term import Forward
from tests.conftest import SmallNet


def test_a_gate_is_hard_and_its_gradient_that_of_the_soft_gate() -> None:
    score = torch.tensor([[1.0, -1.0, 0.5]], requires_grad=True)
    gates = gumbel_gates(score, torch.tensor([[0.0, 2.0, -1.0]]), temperature=0.5)
    assert gates.tolist() == [[1.0, 1.0, 0.0]]  # z = 1, 1 and -0.5
    gates.sum().backward()
    soft = [1 / (1 + math.exp(-z / 0.5)) for z in (1.0, 1.0, -0.5)]
    assert score.grad is not None
    assert score.grad.tolist()[0] == pytest.approx([each * (1 - each) / 0.5 for each in soft])
    closed = gumbel_gates(torch.tensor([[-3.0, -1.0]]), torch.zeros(1, 2), temperature=0.5)
    assert closed.tolist() == [[0.0, 1.0]]  # one stays open


def test_a_channel_is_open_with_the_probability_of_its_sigmoid() -> None:
    torch.manual_seed(0)
    binarize = GumbelGates(2 / 3).train()
    score = torch.tensor([[2.0, 0.0, -1.0, 9.0]]).repeat(20000, 1)
    shares = binarize(score).mean(0).tolist()
    assert shares == pytest.approx([0.8808, 0.5, 0.2689, 0.9999], abs=0.012)
    assert binarize.eval()(score[:1]).tolist() == [[1.0, 0.0, 0.0, 1.0]]


def test_the_loss_is_the_squared_distance_of_the_computed_share_from_the_target() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    gated = Gumbel().gate(SmallNet(), x[:1], spm=SPMConfig())
    with record(gated) as gates:
        gated.train()(x)
    term = FlopsTarget(gated, BudgetController(0.5, ControllerConfig(anneal=0.5)), strength=10.0)
    kept = gated.cost.per_sample({name: gate.applied.detach() for name, gate in gates.items()}).mean().item()
    for progress, target in ((0.0, 1.0), (0.25, 0.75), (0.9, 0.5)):
        made = term.contribute(Forward(None, None, gates, progress))
        assert made.loss is not None and made.target == pytest.approx(target)
        assert made.loss.item() == pytest.approx(10 * (kept / gated.dense_flops - target) ** 2, rel=1e-4)
        assert made.kept == 1.0  # without noise every s is 2


def test_features_are_multiplied_by_the_gates_alone() -> None:
    x = torch.randn(2, 3, 8, 8)
    net = SmallNet().eval()
    gated = Gumbel(config=GumbelConfig(start=3.0)).gate(net, x[:1], spm=SPMConfig()).eval()
    torch.testing.assert_close(gated(x), net(x), rtol=1e-4, atol=1e-5)
