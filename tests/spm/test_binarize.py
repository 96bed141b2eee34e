import math

import pytest
import torch

from sanp.spm.binarize import SemanticHashing, hard_decision, saturating_sigmoid, semantic_hashing
from sanp.spm.top_k import TopK, top_k

LN3, LN11 = math.log(3), math.log(11)


def test_the_saturating_sigmoid_at_points_worked_out_by_hand() -> None:
    # σ(ln 3) = 3/4, so 1.2 * 0.75 - 0.1 = 0.8; σ(±ln 11) = 11/12 and 1/12, where it reaches 1 and 0
    z = torch.tensor([0.0, LN3, -LN3, LN11, -LN11, 9.0, -9.0], dtype=torch.float64)
    wanted = torch.tensor([0.5, 0.8, 0.2, 1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    assert torch.allclose(saturating_sigmoid(z), wanted, atol=1e-12)


def test_a_hard_decision_is_s_above_zero_and_opens_at_least_one_channel() -> None:
    s = torch.tensor([[-1.0, 0.0, 0.1], [-3.0, -0.5, -2.0]])
    assert torch.equal(hard_decision(s), torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))


def test_soft_samples_get_s1_and_hard_samples_s2_with_the_noise_added() -> None:
    s = torch.full((2, 2), LN3 - 1)
    noise = torch.tensor([[1.0, -3 - LN3], [1.0, -3 - LN3]])  # z = (ln 3, -4)
    drawn = semantic_hashing(s, noise, torch.tensor([[True], [False]]))
    assert torch.allclose(drawn.gates, torch.tensor([[0.8, 0.0], [1.0, 0.0]]))
    assert drawn.decision.tolist() == [[1, 0], [1, 0]]
    assert drawn.soft is not None and torch.allclose(drawn.soft, torch.tensor([[0.8, 0.0]] * 2))


@pytest.mark.parametrize("soft", [True, False])
def test_the_gradient_always_flows_through_s1(soft: bool) -> None:
    s = torch.tensor([[0.0, LN3, -5.0]], requires_grad=True)
    semantic_hashing(s, None, torch.tensor([[soft]])).gates.sum().backward()
    # d s1 / ds = 1.2 σ (1 - σ): 0.3 at 0, 1.2 * 3/16 = 0.225 at ln 3, nothing where it is clipped
    assert s.grad is not None
    assert torch.allclose(s.grad, torch.tensor([[0.3, 0.225, 0.0]]))


def test_other_constants_move_the_edge_to_where_s1_is_one_half() -> None:
    hashing = SemanticHashing(noise=0.0, soft_share=0.0, per="sample", slope=1.0, shift=0.2)
    # σ(z) - 0.2 = 0.5 at σ(z) = 0.7, z = ln(7 / 3)
    assert hashing.edge == pytest.approx(math.log(7 / 3))
    assert SemanticHashing(noise=0.0, soft_share=0.0, per="sample").edge == 0.0
    s = torch.tensor([[0.8, 0.9]])  # on either side of ln(7 / 3) = 0.847
    assert hashing.draw(s - hashing.edge).decision.tolist() == hashing.decide(s - hashing.edge).tolist() == [[0, 1]]


def test_a_layer_may_be_left_empty_where_no_channel_is_to_be_kept() -> None:
    hashing = SemanticHashing(noise=0.0, soft_share=0.0, per="sample", keep_one=False)
    s = torch.tensor([[-1.0, -0.5]])
    assert hashing.decide(s).tolist() == hashing.draw(s).decision.tolist() == [[0, 0]]


def test_evaluation_draws_nothing_and_is_hard() -> None:
    hashing = SemanticHashing(noise=1.0, soft_share=0.5, per="sample").eval()
    state = torch.get_rng_state()
    b = hashing(torch.tensor([[0.3, -0.3]]))
    assert torch.equal(b, torch.tensor([[1.0, 0.0]]))
    assert torch.equal(torch.get_rng_state(), state)


def test_in_training_half_of_the_samples_are_soft_and_the_noise_has_deviation_one() -> None:
    torch.manual_seed(0)
    hashing = SemanticHashing(noise=1.0, soft_share=0.5, per="sample")
    b = hashing(torch.zeros(4000, 8))
    soft = ((b > 0) & (b < 1)).any(1)
    assert abs(soft.float().mean().item() - 0.5) < 0.04  # 4000 coins: deviation 0.008
    # P(1.2 σ(z) - 0.1 clipped) = P(|z| > ln 11) = 0.0165 for a standard normal z
    clipped = ((b[soft] == 0) | (b[soft] == 1)).float().mean().item()
    assert abs(clipped - 0.0165) < 0.005


def test_per_element_coins_mix_within_a_sample() -> None:
    torch.manual_seed(0)
    b = SemanticHashing(noise=0.0, soft_share=0.5, per="element")(torch.full((100, 50), LN3))
    soft = (b < 1).float().mean(1)
    assert ((soft > 0.1) & (soft < 0.9)).all()


def test_top_k_keeps_exactly_k_among_ties() -> None:
    s = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 3.0, -1.0, 2.0]])
    b = top_k(s, 2)
    assert b.sum(1).tolist() == [2.0, 2.0]
    assert torch.equal(b[1], torch.tensor([0.0, 1.0, 0.0, 1.0]))


def test_fixed_k_keeps_the_rounded_share_and_at_least_one() -> None:
    s = torch.randn(3, 16)
    assert TopK(16, density=0.8125)(s).sum(1).tolist() == [13.0] * 3
    assert TopK(16, density=0.01)(s).sum(1).tolist() == [1.0] * 3
