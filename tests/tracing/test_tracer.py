"""The trace of one forward: operators, values, module calls, and writes to shared memory."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.modules import call_with, evaluating, tensors_in
from sanp.tracing.graph import ALIASED, WRITTEN, Trace, Value
from sanp.tracing.tracer import trace_forward
from tests.networks.parts import Found, Net, conv

X = torch.randn(2, 3, 4, 4)


def ops(trace: Trace) -> list[str]:
    return [node.op for node in trace.nodes]


def test_nodes_are_what_ran_with_values_for_what_depends_on_the_input() -> None:
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU())
    trace = trace_forward(net, X)
    assert ops(trace) == ["convolution", "relu"]
    first, second = trace.nodes
    assert first.args[0] == trace.inputs[0] and isinstance(first.args[1], Tensor)
    assert second.args[0] == first.outputs[0] and trace.outputs == (second.outputs[0],)
    assert trace.shapes[second.args[0].index] == (2, 5, 2, 2)
    assert trace.consumers() == {trace.inputs[0]: [0], first.outputs[0]: [1]}


def test_module_calls_say_where_an_operator_ran() -> None:
    shared = nn.ReLU()
    trace = trace_forward(nn.Sequential(nn.Sequential(nn.Conv2d(3, 3, 1), shared), shared), X)
    assert [call.path for call in trace.calls] == ["", "0", "0.0", "0.1", "0.1"]
    assert [trace.calls[node.call].path for node in trace.nodes] == ["0.0", "0.1", "0.1"]
    whole, inner = trace.calls[:2]
    assert (whole.parent, inner.parent, inner.first_node, inner.end_node) == (-1, 0, 0, 2)
    assert inner.inputs == trace.inputs and inner.outputs == (trace.nodes[1].outputs[0],)


def test_what_does_not_depend_on_the_input_is_no_node() -> None:
    net = Net(lambda n, x: x + torch.ones(4).cumsum(0), a=nn.Identity())
    assert ops(trace_forward(net, X)) == ["add"]


def test_parameters_and_what_is_computed_from_them_are_known_as_learned() -> None:
    net = Net(lambda n, x: x * n.scale.exp() + torch.zeros(4), scale=nn.Parameter(torch.zeros(4)))
    trace = trace_forward(net, X)
    product, total = trace.nodes
    assert id(product.args[1]) in trace.learned and id(total.args[1]) not in trace.learned


def test_an_in_place_operator_gives_a_new_value() -> None:
    trace = trace_forward(Net(lambda n, x: F.relu_(x * 2) + 1, a=nn.Identity()), X)
    assert ops(trace) == ["mul", "relu_", "add"]
    assert trace.nodes[2].args[0] == trace.nodes[1].outputs[0] != trace.nodes[0].outputs[0]


def test_a_tensor_written_through_a_view_is_another_when_next_used() -> None:
    def forward(n: Net, x: Tensor) -> Tensor:
        y = x * 2
        y[:, 0].zero_()
        return y + 1

    trace = trace_forward(Net(forward, a=nn.Identity()), X)
    assert ops(trace) == ["mul", "select", "zero_", WRITTEN, "add"]
    after = trace.nodes[3]
    assert after.args == (trace.nodes[0].outputs[0], trace.nodes[2].outputs[0])
    assert after.kwargs["over"].shape == (2, 4, 4) and after.kwargs["over"].stride == (48, 4, 1)
    assert trace.nodes[4].args[0] == after.outputs[0]


def test_a_constant_that_is_written_with_features_is_one_no_longer() -> None:
    def forward(n: Net, x: Tensor) -> Tensor:
        out = torch.zeros(2, 5, 4, 4)
        out[:, :3] = x
        return out + 1

    trace = trace_forward(Net(forward, a=nn.Identity()), X)
    assert ops(trace) == ["copy_", WRITTEN, "add"]
    before, written = trace.nodes[1].args
    assert isinstance(before, Tensor) and isinstance(written, Value)


def test_a_tensor_that_came_about_unseen_is_unknown_not_a_constant() -> None:
    trace = trace_forward(Net(lambda n, x: torch.from_numpy((x * 2).numpy()) + 1, a=nn.Identity()), X)
    assert ALIASED in ops(trace) and isinstance(trace.nodes[-1].args[0], Value)


def test_the_forward_runs_in_evaluation_mode_and_leaves_modes_and_hooks_as_they_were() -> None:
    modes = []
    net = Net(lambda n, x: modes.append(n.training) or n.drop(x), drop=nn.Dropout())
    net.drop.eval()
    trace_forward(net, X)
    assert modes == [False] and net.training and not net.drop.training
    assert not net._forward_hooks and not net._forward_pre_hooks


def test_modes_are_put_back_after_an_error() -> None:
    net = Net(lambda n, x: n.drop(x), drop=nn.Dropout())
    net.drop.eval()
    with pytest.raises(RuntimeError), evaluating(net):
        raise RuntimeError
    assert net.training and not net.drop.training


@pytest.mark.parametrize("example, given", [(X, (1, 0)), ((X, X), (2, 0)), ({"x": X}, (0, 1)), ([X], (1, 0))])
def test_an_example_is_an_argument_several_or_keywords(example: Any, given: tuple[int, int]) -> None:
    class Counts(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
            return len(args), len(kwargs)

    assert call_with(Counts(), example) == given


def test_tensors_are_found_in_nested_structures_and_objects() -> None:
    a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert [len(t) for t in tensors_in({"x": [a, Found(logits=b, features=[c])], "y": 3})] == [1, 2, 3]
    trace = trace_forward(Net(lambda n, x: Found(logits=n.a(x), features=[x]), a=conv(3, 2)), X)
    assert trace.outputs == (trace.nodes[0].outputs[0], trace.inputs[0])


def test_a_network_that_does_not_run_says_what_it_was_given() -> None:
    with pytest.raises(SanpError, match=r"Sequential does not run on the example_input of shape \(2, 3, 4, 4\)"):
        trace_forward(nn.Sequential(nn.Linear(5, 5)), X)
