"""Rules for operators: what they say of zero, compared with what PyTorch computes from zero."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanp.tracing.graph import Trace
from sanp.tracing.masks import LIVE, ZERO
from sanp.tracing.operator_call import constant_along, joined_along
from sanp.tracing.operators import KEEP_ZERO
from sanp.tracing.propagation import Propagation
from sanp.tracing.tracer import trace_forward
from sanp.tracing.zero_rules import ZERO_RULES
from tests.networks.parts import Net, conv

NOT_OPERATORS = {"to", "contiguous", "dropout", "alpha_dropout", "feature_dropout"}  # seen only by their parts
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "prelu": (torch.tensor([0.3]),),
    "_prelu_kernel": (torch.tensor([0.3]),),
    "native_dropout": (0.5, True),
    "rrelu_with_noise": (torch.ones(2, 3),),
}


@pytest.mark.parametrize("name", sorted(KEEP_ZERO - NOT_OPERATORS))
def test_operators_that_are_said_to_keep_zero_do(name: str) -> None:
    result = getattr(torch.ops.aten, name)(torch.zeros(2, 3), *ARGUMENTS.get(name, ()))
    result = result[0] if isinstance(result, tuple) else result
    assert not result.any()


def follow(forward: Any, **modules: Any) -> tuple[Propagation, Trace]:
    """Runs a network whose convolution ``a`` has six gated channels, mask ids 2 to 7."""
    trace = trace_forward(Net(forward, a=conv(3, 6), **modules), torch.randn(2, 3, 4, 4))
    propagation = Propagation(trace)
    for node in trace.nodes:
        propagation.run(node)
        if node.op == "convolution" and trace.calls[node.call].path == "a":
            propagation.set_channels(node.outputs[0], propagation.masks.add_gate("a", 6))  # type: ignore[arg-type]
    return propagation, trace


def channels(forward: Any, **modules: Any) -> list[int]:
    propagation, trace = follow(forward, **modules)
    return propagation.channels(trace.outputs[0]).tolist()


GATES = [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "forward, expected",
    [
        (lambda n, x: F.leaky_relu(n.a(x)), GATES),
        (lambda n, x: n.a(x).clamp(-1, 1), GATES),
        (lambda n, x: n.a(x).clamp(min=0.1), [LIVE] * 6),
        (lambda n, x: n.a(x).clamp_max(6), GATES),
        (lambda n, x: n.a(x) + 1, [LIVE] * 6),
        (lambda n, x: n.a(x) * 0, [ZERO] * 6),
        (lambda n, x: (y := n.a(x)) - y.neg(), GATES),
        (lambda n, x: n.a(x) ** 2 / 3, GATES),
        (lambda n, x: n.a(x) ** 0, [LIVE] * 6),
        (lambda n, x: n.a(x).exp(), [LIVE] * 6),
        (lambda n, x: n.a(x)[:, ::2], [2, 4, 6]),
        (lambda n, x: n.a(x).flip(1).roll(1, 1), [2, 7, 6, 5, 4, 3]),
        (lambda n, x: F.channel_shuffle(n.a(x), 2), [2, 5, 3, 6, 4, 7]),
        (lambda n, x: F.pad(n.a(x), (1, 1, 1, 1, 1, 0)), [ZERO, *GATES]),
        (lambda n, x: F.pad(n.a(x), (1, 1), value=1.0), [LIVE] * 6),
        (lambda n, x: torch.cat((n.a(x), torch.zeros(2, 1, 4, 4)), 1), [*GATES, ZERO]),
        (lambda n, x: F.max_pool2d(n.a(x), 2, padding=1), GATES),
        (lambda n, x: F.interpolate(n.a(x), scale_factor=2, mode="bilinear"), GATES),
        (lambda n, x: n.a(x).amax((2, 3)), GATES),
        (lambda n, x: n.a(x).max(3).values.max(2)[0], GATES),
        (lambda n, x: torch.linalg.vector_norm(n.a(x), dim=(2, 3)), GATES),
        (lambda n, x: n.a(x).masked_fill(x[:, :1] > 0, 0.0), GATES),
        (lambda n, x: n.a(x).masked_fill(x[:, :1] > 0, 1.0), [LIVE] * 6),
        (lambda n, x: torch.where(x[:, :1] > 0, n.a(x), 0.0), GATES),
        (lambda n, x: torch.lerp(n.a(x), torch.zeros_like(x[:, :1]), 0.3), GATES),
        (lambda n, x: F.pad(n.a(x), (0, 0, 0, 0, 1, 0), value=1.0), [LIVE, *GATES]),
        (lambda n, x: F.pad(n.a(x), (1, 0), value=1.0), [LIVE] * 6),
        (lambda n, x: n.a(x).cumsum(2), GATES),
        (lambda n, x: n.a(x).cumsum(1), [LIVE] * 6),
        (lambda n, x: n.a(x).cumsum(0), [LIVE] * 6),
        (lambda n, x: n.a(x).flatten(2).topk(3).values, GATES),
        (lambda n, x: n.a(x).flatten(2).sort(descending=True)[0], GATES),
        (lambda n, x: n.a(x).gather(3, x[:, :1].long().clamp(0, 3).expand(-1, 4, -1, -1)), [2, 3, 4, 5]),
        (lambda n, x: n.a(x).gather(0, torch.zeros(2, 6, 4, 4, dtype=torch.long)), [LIVE] * 6),
        (lambda n, x: F.glu(n.a(x), 1), [2, 3, 4]),
        (lambda n, x: F.scaled_dot_product_attention(x.mT, x.mT, n.a(x)[:, :3].mT).mT, [2, 3, 4]),
        (lambda n, x: n.a(x).index_select(1, torch.tensor([5, 0])), [7, 2]),
        (lambda n, x: n.a(x)[:, (x.mean((0, 2, 3)) > 9).long()], [LIVE] * 3),  # the image says which
        (lambda n, x: n.a(x).data, GATES),
        (lambda n, x: torch.from_numpy(n.a(x).numpy()), [LIVE] * 6),
        (lambda n, x: n.a(x).view(torch.int32), [LIVE] * 6),
    ],
)
def test_zero_channels_go_where_they_should(forward: Any, expected: list[int]) -> None:
    assert channels(forward) == expected


def test_a_sum_over_channels_is_their_union() -> None:
    propagation, trace = follow(lambda n, x: n.a(x).unflatten(1, (3, 2)).sum(2))
    pairs = propagation.masks.blocks[1]
    assert not isinstance(pairs, str) and pairs.kind == "union"
    assert (pairs.left.tolist(), pairs.right.tolist()) == ([2, 4, 6], [3, 5, 7])
    assert propagation.channels(trace.outputs[0]).tolist() == [8, 9, 10]


def test_a_matrix_product_keeps_the_zero_rows_of_its_left_side() -> None:
    assert channels(lambda n, x: torch.bmm(n.a(x).flatten(2), x.flatten(2).transpose(1, 2))) == GATES


def test_channels_count_as_live_where_samples_are_mixed() -> None:
    assert channels(lambda n, x: n.a(x).mean(0, keepdim=True)) == [LIVE] * 6
    assert channels(lambda n, x: (y := n.a(x)) + y.flip(0)) == [LIVE] * 6
    assert channels(lambda n, x: (y := n.a(x))[:1] + y) == [LIVE] * 6
    assert channels(lambda n, x: n.a(x).transpose(0, 1).transpose(0, 1)) == GATES
    assert channels(lambda n, x: torch.stack((y := n.a(x), y)).mean(0)) == GATES


def test_an_operator_without_a_rule_is_listed_and_one_that_never_keeps_zero_is_not() -> None:
    assert follow(lambda n, x: n.a(x).cumsum(1).sigmoid())[0].unknown == {"cumsum": 1}
    assert follow(lambda n, x: n.a(x).sigmoid().softmax(1))[0].unknown == {}


def test_a_call_that_a_rule_did_not_foresee_is_live_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unforeseen(call: Any) -> Any:
        raise IndexError

    monkeypatch.setitem(ZERO_RULES, "tanh", unforeseen)
    propagation, trace = follow(lambda n, x: n.a(x).tanh())
    assert propagation.channels(trace.outputs[0]).tolist() == [LIVE] * 6 and propagation.unknown == {"tanh": 1}


def test_mask_ids_are_reduced_along_dimensions() -> None:
    map_of = torch.tensor([[5, 5], [ZERO, 5]])
    assert constant_along(map_of, [0, 1]) is None
    assert joined_along(map_of, [0, 1]) == Tensor([5])
    assert joined_along(torch.tensor([[5, LIVE]]), [1]) is None
    assert joined_along(torch.tensor([[ZERO, ZERO]]), [1]) == Tensor([ZERO])
    assert constant_along(torch.tensor(3).expand(2, 2), [1]) is not None
