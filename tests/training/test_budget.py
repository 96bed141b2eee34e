import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import sanp
from sanp.core.errors import BudgetWarning
from sanp.gating.gating import gate
from sanp.training.budget import Budget, ObjectiveConfig
from sanp.training.penalties import (
    PENALTIES,
    flops_penalty,
    gate_penalty,
    positive_penalty,
    runaway_penalty,
    saliency_penalty,
)

# Of TwoConvs on 4x4: first 16 * (3 * 9 + 1) * 2 = 896, second 16 * (2 * 1 + 1) * 4 = 192; 6 filters in all.
DENSE = 896 + 192
S = {"first": torch.tensor([[1.0, -2.0]]), "second": torch.tensor([[0.5, -0.5, 4.0, 0.0]])}


@pytest.fixture
def gated(two_convs: nn.Module) -> sanp.GatedNetwork:
    return gate(two_convs, torch.zeros(1, 3, 4, 4))


def test_the_paper_s_penalty_is_the_mean_absolute_saliency_of_all_filters(gated: sanp.GatedNetwork) -> None:
    assert gated.cost.num_channels == 6
    assert saliency_penalty(S, gated.cost).item() == pytest.approx((1 + 2 + 0.5 + 0.5 + 4 + 0) / 6)


def test_it_is_averaged_over_the_samples(gated: sanp.GatedNetwork) -> None:
    two = {name: torch.cat([s, torch.zeros_like(s)]) for name, s in S.items()}
    assert saliency_penalty(two, gated.cost).item() == pytest.approx((1 + 2 + 0.5 + 0.5 + 4) / 12)


def test_the_positive_part_leaves_closed_channels_alone(gated: sanp.GatedNetwork) -> None:
    assert positive_penalty(S, gated.cost).item() == pytest.approx((1 + 0.5 + 4) / 6)


def test_soft_gates_where_they_saturate(gated: sanp.GatedNetwork) -> None:
    # Beyond ln 11 = 2.4 the soft gate is 0 or 1: one of 2 and three of 4 open
    s = {"first": torch.tensor([[3.0, -3.0]]), "second": torch.tensor([[3.0, 3.0, 3.0, -3.0]])}
    assert gate_penalty(s, gated.cost).item() == pytest.approx(4 / 6)


def test_the_flops_penalty_is_what_soft_gates_of_threefold_steepness_cost(gated: sanp.GatedNetwork) -> None:
    # σ(3 · ln 3 / 3) = 3/4: 1.5 of 2 open, then 4 · 3/4 = 3 of 4: 448 · 1.5 + 16 · (1.5 + 1) · 3 = 672 + 120
    s = {"first": torch.full((1, 2), math.log(3) / 3), "second": torch.full((1, 4), math.log(3) / 3)}
    assert flops_penalty(s, gated.cost).item() == pytest.approx((672 + 120) / DENSE)


def test_it_pulls_at_the_edge_more_than_far_from_it_and_can_reopen_closed_channels(gated: sanp.GatedNetwork) -> None:
    def slope(at: float) -> float:
        s = {name: torch.full_like(each, at).requires_grad_() for name, each in S.items()}
        flops_penalty(s, gated.cost).backward()
        return float(s["first"].grad.abs().sum())  # type: ignore[union-attr]

    assert slope(0.0) > 4 * slope(1.0)
    assert slope(-1.0) > 1e-2


def test_what_runs_away_is_pulled_back_by_its_square(gated: sanp.GatedNetwork) -> None:
    # -2 is 1 below -1, 4 is 1 above 3, the rest lies between
    assert runaway_penalty(S, gated.cost).item() == pytest.approx((1 + 1) / 6)


def recorded(gated: sanp.GatedNetwork, saliencies: dict[str, Tensor]) -> dict[str, sanp.Gates]:
    from sanp.spm.binarize import hard_decision

    return {name: sanp.Gates(s, hard_decision(s), hard_decision(s)) for name, s in saliencies.items()}


def test_the_cost_loss_is_lambda_times_the_penalty(gated: sanp.GatedNetwork) -> None:
    paper = sanp.ControllerConfig(strength=0.01, lowest=-0.01, highest=0.01, memory=0.0, anneal=0.0)
    budget = Budget(
        gated,
        "45%",
        objective=ObjectiveConfig(penalty="saliency", reopen=False, runaway=0.0),
        controller=paper,
    )
    loss = budget.loss(recorded(gated, S))
    # open: 1 of 2, and 2 of 4 (0.5 and 4): 448 + 16 * (1 + 1) * 2 = 64
    cost = (448 + 64) / DENSE
    assert budget.running_kept == pytest.approx(cost)
    assert budget.cost_weight == pytest.approx(0.01 * (cost - 0.45))
    assert loss.item() == pytest.approx(0.01 * (cost - 0.45) * 8 / 6)


def test_the_target_falls_over_the_steps_where_their_number_is_known(gated: sanp.GatedNetwork) -> None:
    budget = Budget(gated, 0.5, steps=4, controller=sanp.ControllerConfig(anneal=0.5))
    targets = []
    for _ in range(4):
        budget.loss(recorded(gated, S))
        targets.append(budget.target)
    assert targets == pytest.approx([1.0, 0.75, 0.5, 0.5])


def test_a_budget_below_the_floor_is_refused_with_the_floor(gated: sanp.GatedNetwork) -> None:
    # one channel open in each: 16 * 28 + 16 * 2 = 480 of 1088 = 44.118 %... of which the budget asks 10 %
    with pytest.raises(sanp.SanpError, match=r"44\.118%"):
        Budget(gated, "10%")
    with pytest.raises(sanp.SanpError, match="more than the dense"):
        Budget(gated, "2G")


def test_mistakes_in_one_s_own_loop_are_explained(gated: sanp.GatedNetwork, two_convs: nn.Module) -> None:
    with pytest.raises(sanp.SanpError, match=r"sanp\.gate"):
        Budget(two_convs, "50%")  # type: ignore[arg-type]
    with pytest.raises(sanp.SanpError, match=r"sanp\.record"):
        Budget(gated, "50%").loss({})
    with pytest.raises(sanp.SanpError, match="did you mean saliency"):
        ObjectiveConfig(penalty="salience")  # type: ignore[arg-type]
    assert set(PENALTIES) == {"saliency", "positive", "gates", "flops"}


def step(gated: sanp.GatedNetwork, budget: Budget, times: int = 1) -> None:
    with sanp.record(gated) as gates:
        output = gated(torch.zeros(2, 3, 4, 4))
    for _ in range(times):
        (output.sum() + budget.loss(gates)).backward(retain_graph=True)


def test_a_second_loss_of_one_forward_is_an_error(gated: sanp.GatedNetwork) -> None:
    budget = Budget(gated, "60%", steps=10)
    step(gated, budget)
    step(gated, budget)
    with pytest.raises(sanp.SanpError, match="twice for one forward"):
        step(gated, budget, times=2)
    assert budget.step == 3


def test_a_forward_without_a_loss_gives_one_warning(gated: sanp.GatedNetwork) -> None:
    budget = Budget(gated, "60%")
    step(gated, budget)
    gated(torch.zeros(2, 3, 4, 4))
    with pytest.warns(BudgetWarning, match="2 forwards in training since the last budget.loss"):
        step(gated, budget)
    gated(torch.zeros(2, 3, 4, 4))
    step(gated, budget)  # said once


def test_a_budget_that_is_never_asked_says_so(gated: sanp.GatedNetwork) -> None:
    budget = Budget(gated, "60%")
    with pytest.warns(BudgetWarning, match=r"10 times in training without a call of budget\.loss"):
        for _ in range(12):
            gated(torch.zeros(2, 3, 4, 4))
    assert budget.step == 0


def test_forwards_that_are_no_training_need_no_loss(gated: sanp.GatedNetwork) -> None:
    budget = Budget(gated, "60%")
    for _ in range(20):
        with torch.no_grad():
            gated(torch.zeros(2, 3, 4, 4))
        gated.eval()(torch.zeros(2, 3, 4, 4))
        gated.train()
        step(gated, budget)
    assert budget.step == 20
    other = Budget(gated, "50%")  # the newest budget counts
    for _ in range(12):
        step(gated, other)
    assert other.step == 12
    del other
    for _ in range(12):  # its network is free again
        gated(torch.zeros(2, 3, 4, 4))
    assert budget.step == 20


def test_a_checkpointed_forward_counts_once(gated: sanp.GatedNetwork) -> None:
    budget = Budget(gated, "60%")
    for _ in range(3):
        with sanp.record(gated) as gates:
            output = checkpoint(gated, torch.zeros(2, 3, 4, 4), use_reentrant=False)
        (output.sum() + budget.loss(gates)).backward()
        assert list(gates) == list(gated.layers)
    assert budget.step == 3


def test_a_budget_and_a_cost_model_say_what_they_are(gated: sanp.GatedNetwork) -> None:
    budget = Budget(gated, "60%", steps=10)
    assert repr(budget) == "Budget(60.0% of 1.088k FLOPs; step 0 of 10: target 100.0%)"
    step(gated, budget)
    assert "step 1 of 10: target 100.0%, now 100.0%, λ " in repr(budget)
    assert repr(gated.cost) == "CostModel(2 of 2 convolutions gated, 1.088k FLOPs dense, 480 at the least)"
