"""Gating of networks of many styles: they pass the battery, and what cannot be gated has a reason."""

import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.gating.gating import gate
from sanp.gating.sites import ON_A_VECTOR
from sanp.spm.gated_conv import FollowingConv
from sanp.testing import check_network
from sanp.testing.handling import check_deepcopy, check_training_step
from sanp.testing.truth import (
    check_cost_is_what_is_left,
    check_open_gates_change_nothing,
    check_pruned_channels_are_zero,
)
from tests.networks.forwards import listed
from tests.networks.parts import IMAGE, Blur, Net, OwnNorm, block, conv
from tests.networks.strangers import STRANGERS

CHECKS = (
    check_open_gates_change_nothing,
    check_cost_is_what_is_left,
    check_pruned_channels_are_zero,
    check_training_step,
    check_deepcopy,
)
DENSE = {
    "squeeze and excitation": {"down": ON_A_VECTOR, "up": ON_A_VECTOR},
    "crops in the batch half way": {"b.0": "its rows are not the samples of the batch"},
    "samples that are mixed": {
        "b": "its rows are not the samples of the batch",
        "d": "its rows are not the samples of the batch",
    },
}
UNKNOWN = {
    "samples that are mixed": {"add across samples": 1, "mean across samples": 1},
    "frames in the batch": {"view across samples": 1},
    "attention between positions": {"bmm": 1},  # of two gated layers: live only where the same channel is on both sides
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_network_of_any_style_tells_the_truth(name: str) -> None:
    make, example = STRANGERS[name]
    report = check_network(make, example, checks=CHECKS)
    assert report.skipped == DENSE.get(name, {})
    assert report.unknown == UNKNOWN.get(name, {})
    assert report.skipped_checks == {}


@pytest.mark.parametrize(
    "name, following",
    [("depthwise", 2), ("a blurring pool", 1), ("a depthwise module used three times", 0), ("groups", 0)],
)
def test_depthwise_convolutions_follow_their_input(name: str, following: int) -> None:
    make, example = STRANGERS[name]
    cost = gate(make(), example).cost
    assert sum(layer.role == "follows" for layer in cost.layers) == following


@pytest.mark.parametrize(
    "name, norm",
    [
        ("a frozen batch norm", "FrozenNorm"),
        ("a batch norm with its activation inside", "NormAct"),
        ("a batch norm of one's own", "OwnNorm"),
        ("an instance norm", "InstanceNorm2d"),
        ("a group norm", "NoneType"),  # its statistics need all channels, so the gate stands before it
        ("no batch norm, a bias", "NoneType"),
    ],
)
def test_the_norm_behind_a_convolution_moves_inside(name: str, norm: str) -> None:
    make, example = STRANGERS[name]
    assert type(gate(make(), example).layers["0"].norm).__name__ == norm


def test_a_gate_stands_behind_a_functional_batch_norm() -> None:
    make, example = STRANGERS["a functional batch norm"]
    gated = gate(make(), example)
    gated.layers["a"].spm.threshold.fill_(2.0)  # closes all but one
    seen: list[Tensor] = []
    gated.layers["b"].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    gated.eval()(example)
    assert seen[0].flatten(2).any(2).sum() <= 1
    with pytest.raises(sanp.SanpError, match="call the whole gated network"):
        gated.net(example)


def test_batch_norms_that_cannot_move_leave_their_input_dense() -> None:
    make, example = STRANGERS["a module used twice with two batch norms"]
    gated = gate(make(), example)
    assert gated.layers["a"].norm is None
    assert gated.cost.topology.layer("b").inputs.tolist() == [0, 0, 0]


def with_shortcut() -> Net:
    return Net(
        lambda n, x: F.relu(n.short(y := n.stem(x)) + n.long(y)),
        stem=block(3, 4),
        short=conv(4, 8, 1),
        long=nn.Sequential(block(4, 8), block(8, 8)),
    )


def test_shortcuts_can_be_left_dense() -> None:
    assert gate(with_shortcut(), IMAGE, shortcuts=False).skipped == {"short": "shortcut convolution"}


def test_modules_named_in_skip_are_left_dense() -> None:
    gated = gate(with_shortcut(), IMAGE, skip=["long.*"])
    assert gated.skipped == {f"long.{i}.0": "named in skip" for i in (0, 1)}


def test_a_skip_that_names_no_module_or_is_one_string_is_an_error() -> None:
    with pytest.raises(sanp.SanpError, match=r"unknown module to skip 'sort': did you mean short"):
        gate(with_shortcut(), IMAGE, skip=["sort"])
    with pytest.raises(sanp.SanpError, match="is one string"):
        gate(with_shortcut(), IMAGE, skip="long")


def test_convolutions_that_are_no_modules_are_left_dense_with_the_reason() -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 3, 3, 3))
            self.last = conv(4, 2)

        def forward(self, x: Tensor) -> Any:
            return self.last(F.relu(F.conv2d(x, self.kernel)))

    gated = gate(Inside(), IMAGE)
    assert gated.skipped == {"forward": "the convolution is called inside a larger module, not as a module of its own"}
    assert "larger module" in repr(gated) and list(gated.layers) == ["last"]


def test_the_original_and_its_modes_are_left_alone() -> None:
    net = nn.Sequential(block(3, 4), conv(4, 2))
    net[0].eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    gated = gate(net, IMAGE)
    assert gated.training and not gated.layers["0.0"].training
    assert net.training and not net[0].training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert not any(isinstance(module, FollowingConv) for module in net.modules())


def test_attributes_of_the_layers_can_still_be_read() -> None:
    def forward(n: Net, x: Tensor) -> Any:
        pad = n.a.kernel_size[0] // 2
        return n.b(n.norm(n.a(F.pad(x, (pad,) * 4))) / n.norm.num_features) * n.a.weight.mean()

    net = Net(forward, a=nn.Conv2d(3, 6, 3), norm=nn.BatchNorm2d(6), b=conv(6, 2))
    report = check_network(lambda: net, IMAGE, checks=CHECKS)
    assert report.gated == 2


def test_a_forward_that_asks_for_its_modules_class_is_an_error_not_a_wrong_answer() -> None:
    def forward(n: Net, x: Tensor) -> Any:
        for layer in n.children():
            x = layer(x) if isinstance(layer, nn.Conv2d) else x
        return x

    with pytest.raises(sanp.SanpError, match="does not run as it did before"):
        gate(Net(forward, a=conv(3, 4), b=conv(4, 4)), IMAGE)


def test_old_style_weight_norm_can_be_copied() -> None:
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(conv(3, 6))
    net = nn.Sequential(layer, nn.ReLU(), conv(6, 2))
    net(IMAGE)  # leaves a computed kernel in the layer, which deepcopy refuses
    assert len(gate(net, IMAGE).layers) == 2


def test_what_cannot_be_gated_is_an_error_that_says_so() -> None:
    with pytest.raises(sanp.SanpError, match="ran no convolution"):
        gate(nn.Linear(3, 3), torch.randn(1, 3))
    with pytest.raises(sanp.SanpError, match=r"does not run on the example_input of shape \(1, 2, 8, 8\)"):
        gate(block(3, 4), torch.randn(1, 2, 8, 8))
    with pytest.raises(sanp.SanpError, match="holds no tensor"):
        gate(block(3, 4), "image")
    with pytest.raises(sanp.SanpError, match="gated already"):
        gate(gate(block(3, 4), IMAGE), IMAGE)


def test_a_network_made_for_batches_of_one_is_gated_as_it_is() -> None:
    net = Net(lambda n, x: n.fc(n.a(x).reshape(1, 6 * 64)), a=block(3, 6), fc=nn.Linear(6 * 64, 2))
    assert list(gate(net, IMAGE).layers) == ["a.0"]


def at_60_percent() -> tuple[sanp.GatedNetwork, Tensor]:
    make, example = STRANGERS["depthwise"]
    gated = gate(make(), example).eval()
    gated.set_budget("60%", torch.randn(16, 3, 8, 8))
    return gated, example


def test_a_gated_network_can_be_pickled() -> None:
    gated, example = at_60_percent()
    again = pickle.loads(pickle.dumps(gated))
    assert torch.equal(again(example), gated(example))


def test_a_gated_network_runs_in_half_precision_with_its_spms_in_single() -> None:
    gated, example = at_60_percent()
    expected = gated(example)
    half = gated.half()
    assert {parameter.dtype for parameter in half.spm_parameters()} == {torch.float32}
    assert torch.allclose(half(example.half()).float(), expected, atol=1e-2)


def test_stochastic_depth_leaves_out_gates_without_harm() -> None:
    def forward(n: Net, x: Tensor) -> Any:
        x = n.a(x)
        return n.c(x if n.training else x + n.b(x))

    gated = gate(Net(forward, a=block(3, 4), b=block(4, 4), c=conv(4, 2)), IMAGE)
    with sanp.record(gated.train()) as gates:
        gated(IMAGE.expand(2, -1, -1, -1))
    assert set(gates) == {"a.0", "c"}
    assert torch.isfinite(sanp.Budget(gated, "50%").loss(gates))


@pytest.mark.parametrize("make", [listed, lambda: nn.Sequential(block(3, 4), Blur(), OwnNorm(4), conv(4, 2))])
def test_gating_twice_gives_the_same_network(make: Any) -> None:
    net = make()
    first, second = gate(net, IMAGE), gate(net, IMAGE)
    assert list(first.layers) == list(second.layers) and first.skipped == second.skipped
    assert first.state_dict().keys() == second.state_dict().keys()
