"""Budgets of a compiled network agree with the network's own, for a call or a sample, from any thread."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import sanp
from sanp.gating.dial import Dial
from tests.conftest import SmallNet

IMAGES = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(3))
BUDGETS = ("30%", "41.7%", "60%")


def dialled(net: nn.Module | None = None) -> sanp.GatedNetwork:
    """A network with random saliencies and a dial over them; nothing here depends on how good it is."""
    gated = sanp.gate(net or SmallNet(), IMAGES[:1]).eval()
    gated.set_budget("50%", IMAGES)
    for module in gated.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)  # type: ignore[arg-type]
    gated.set_budget("30%..60%", IMAGES)
    return gated


def expected(gated: sanp.GatedNetwork, budget: object) -> torch.Tensor:
    gated.set_budget(budget)
    with torch.no_grad():
        outputs: torch.Tensor = gated(IMAGES)
    return outputs


@pytest.mark.parametrize("threads", [1, 2])
def test_the_engine_agrees_at_every_budget(threads: int) -> None:
    gated = dialled()
    fast = sanp.compile(gated, IMAGES[:1], threads=threads, tune=False)
    seen = []
    for budget in (*BUDGETS, BUDGETS[0]):
        fast.set_budget(budget)
        seen.append(fast(IMAGES))
        torch.testing.assert_close(seen[-1], expected(gated, budget), rtol=1e-4, atol=1e-5)
    assert torch.equal(seen[0], seen[-1]) and not torch.allclose(seen[0], seen[1])


def test_one_call_or_one_sample_may_have_a_budget_of_its_own() -> None:
    gated = dialled()
    fast = sanp.compile(gated, IMAGES[:1], tune=False)
    fast.set_budget("60%")
    torch.testing.assert_close(fast(IMAGES, budget="30%"), expected(gated, "30%"), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fast(IMAGES), expected(gated, "60%"), rtol=1e-4, atol=1e-5)
    assert torch.equal(fast(IMAGES, budget=None), fast(IMAGES))
    each = [BUDGETS[row % 3] for row in range(24)]
    wanted = torch.stack([expected(gated, budget)[row] for row, budget in enumerate(each)])
    torch.testing.assert_close(fast(IMAGES, budget=each), wanted, rtol=1e-4, atol=1e-5)
    given = torch.tensor([gated.kept_for(budget) for budget in each])
    torch.testing.assert_close(fast(IMAGES.numpy(), budget=given), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_samples_that_torch_computes_have_the_budget_too() -> None:
    gated = dialled()
    fast = sanp.compile(gated, IMAGES[:1], tune=False)
    images = IMAGES.clone()
    images[5, 0, 0, 0] = torch.inf
    gated.set_budget("60%")
    with torch.no_grad():
        wanted = gated(images)
    torch.testing.assert_close(fast(images, budget="60%"), wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_without_the_native_library(no_library: None) -> None:
    gated = dialled()
    with pytest.warns(UserWarning, match="SANP_NATIVE is off"):
        fast = sanp.compile(gated, IMAGES[:1])
    each = [BUDGETS[row % 3] for row in range(24)]
    wanted = torch.stack([expected(gated, budget)[row] for row, budget in enumerate(each)])
    torch.testing.assert_close(fast(IMAGES, budget=each), wanted)
    fast.set_budget("60%")
    torch.testing.assert_close(fast(IMAGES), expected(gated, "60%"))


def test_budgets_are_set_beside_running_calls() -> None:
    """Every call has exactly the outputs of one of the budgets, never of a mixture."""
    gated = dialled()
    fast = sanp.compile(gated, IMAGES[:1], tune=False)
    allowed = [fast(IMAGES, budget=budget) for budget in BUDGETS]
    fast.set_budget(BUDGETS[0])
    over, wrong = threading.Event(), []

    def call() -> None:
        while not over.is_set():
            made = fast(IMAGES)
            if not any(torch.equal(made, each) for each in allowed):
                wrong.append(made)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for turn in range(300):
        fast.set_budget(BUDGETS[turn % 3])
        fast(IMAGES[:1])
    over.set()
    for caller in callers:
        caller.join()
    assert not wrong


def test_what_cannot_be_set_says_why() -> None:
    gated = dialled()
    fast = sanp.compile(gated, IMAGES[:1], tune=False)
    with pytest.raises(sanp.SanpError, match="outside 30"):
        fast.set_budget("90%")
    with pytest.raises(sanp.SanpError, match="2 budgets were given for 24 samples"):
        fast(IMAGES, budget=["30%", "40%"])
    gated.dial = None
    with pytest.raises(sanp.SanpError, match="not trained for a range"):
        sanp.compile(gated, IMAGES[:1], tune=False).set_budget("40%")
    gated.dial = Dial((0.3, 0.6), (0.5, 0.1))
    next(iter(gated.layers.values())).spm.level = -1.0
    with pytest.raises(sanp.SanpError, match="not those of its dial"):
        sanp.compile(gated, IMAGES[:1], tune=False).set_budget("40%")


def test_a_forward_that_takes_a_budget_of_its_own_is_left_alone() -> None:
    class Own(SmallNet):
        def forward(self, x: torch.Tensor, budget: float = 1.0) -> torch.Tensor:
            return super().forward(x) * budget

    fast = sanp.compile(Own().eval(), {"x": IMAGES[:1], "budget": 2.0}, tune=False)
    assert isinstance(fast(x=IMAGES, budget=2.0), torch.Tensor)
    assert np.isfinite(fast(x=IMAGES, budget=2.0).numpy()).all()


def test_what_the_engine_says_it_decided_is_of_the_set_budget() -> None:
    gated = dialled()
    fast = sanp.compile(gated, IMAGES[:1], tune=False)
    for budget in BUDGETS:
        fast.set_budget(budget)
        gated.set_budget(budget)
        found = fast.run_recorded(IMAGES)
        assert found is not None
        with torch.no_grad(), sanp.record(gated) as gates:
            gated(IMAGES)
        assert all(torch.equal(decision, gates[name].decision) for name, decision in found[1].items())
