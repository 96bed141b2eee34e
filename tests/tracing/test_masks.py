"""MaskTable: unions and intersections of gates, compared with sets."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sanp.tracing.masks import LIVE, ZERO, Liveness, MaskTable, OpenChannels


def test_the_ids_of_always_live_and_always_zero_absorb_others_or_vanish() -> None:
    masks = MaskTable()
    a = masks.add_gate("a", 2)
    live, zero = torch.full((2,), LIVE), torch.full((2,), ZERO)
    assert masks.union(a, zero).equal(a) and masks.union(a, live).equal(live)
    assert masks.intersection(a, live).equal(a) and masks.intersection(a, zero).equal(zero)
    assert masks.union(a, a).equal(a)
    assert masks.width == 4  # nothing new was needed


def test_a_union_has_the_same_id_in_either_order() -> None:
    masks = MaskTable()
    a, b = masks.add_gate("a", 3), masks.add_gate("b", 3)
    assert masks.union(a, b).equal(masks.union(b, a))
    assert masks.width == 2 + 3 + 3 + 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 99), st.integers(0, 99), st.permutations(range(3))), max_size=8)
)
def test_any_expression_is_what_sets_say(steps: list[tuple[bool, int, int, list[int]]]) -> None:
    masks = MaskTable()
    decisions = {name: torch.randint(2, (5, 3)).float() for name in "abc"}
    pool = [masks.add_gate(name, 3) for name in "abc"]
    truth = [decisions[name].bool() for name in "abc"]
    for union, i, j, order in steps:
        left, right = i % len(pool), j % len(pool)
        combine = masks.union if union else masks.intersection
        pool.append(combine(pool[left], pool[right][order]))
        a, b = truth[left], truth[right][:, order]
        truth.append(a | b if union else a & b)
    for found, expected in zip(Liveness(masks, pool)(decisions), truth, strict=True):
        assert found.expand(5, -1).bool().equal(expected)


def test_soft_gates_are_joined_as_probabilities() -> None:
    masks = MaskTable()
    both = masks.union(masks.add_gate("a", 1), masks.add_gate("b", 1))
    found = Liveness(masks, [both])({"a": torch.tensor([[0.5]]), "b": torch.tensor([[0.4]])})[0]
    assert abs(found.item() - 0.7) < 1e-6  # 0.5 + 0.4 - 0.2


def test_only_the_gates_that_matter_are_asked_for() -> None:
    masks = MaskTable()
    a, b = masks.add_gate("a", 2), masks.add_gate("b", 2)
    union = masks.union(a, b)
    masks.add_gate("later", 2)
    assert OpenChannels(masks, a).gates == {"a": 2}
    assert Liveness(masks, [union]).gates == ("a", "b")
    applied = {"a": torch.tensor([[1.0, 0.0]])}
    assert OpenChannels(masks, a)(applied) is applied["a"]  # a whole gate is read as it is


def test_a_layer_that_did_not_run_has_no_channel_open() -> None:
    masks = MaskTable()
    both = masks.union(masks.add_gate("a", 2), masks.add_gate("b", 2))
    assert OpenChannels(masks, both)({"a": torch.tensor([[1.0, 0.0]])}).tolist() == [[1, 0]]


def test_fixed_ids_and_those_of_gates_may_be_mixed_in_any_order() -> None:
    masks = MaskTable()
    a = masks.add_gate("a", 3)
    which = torch.tensor([int(a[2]), LIVE, ZERO, int(a[0])])
    found = Liveness(masks, [which])({"a": torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])})[0]
    assert found.tolist() == [[0, 1, 0, 1], [1, 1, 0, 0]]
