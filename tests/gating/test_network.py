"""The gated network: its table, its parameters, its budget."""

import pytest
import torch
from torch import nn

import sanp
from tests.networks.parts import IMAGE, Net, block, conv


def inverted() -> nn.Module:
    return Net(
        lambda n, x: n.fc((n.project(n.depthwise(n.expand(x))) + x).mean((2, 3))),
        expand=block(3, 6, 1),
        depthwise=block(6, 6, groups=6),
        project=conv(6, 3, 1),
        fc=nn.Linear(3, 2),
    )


def test_the_table_shows_layers_gates_and_what_feeds_them() -> None:
    gated = sanp.gate(inverted(), IMAGE, skip=["project"])
    assert repr(gated).splitlines() == [
        "Net: 6.72k FLOPs dense, 1.28k at the least",
        "layer        channels   FLOPs   gate                  fed by",
        "expand.0     3 > 6      1.536k  SPM                   everything",
        "depthwise.0  6 > 6 / 6  3.84k   follows its input     expand.0",
        "project      6 > 3      1.344k  dense: named in skip  expand.0",
        "linear layers: 8 FLOPs, not counted above",
    ]


def test_a_layer_fed_by_an_addition_names_both_gates() -> None:
    net = Net(lambda n, x: n.c(n.a(x) + n.b(x)), a=block(3, 4), b=block(3, 4), c=conv(4, 2))
    assert repr(sanp.gate(net, IMAGE)).splitlines()[-1].endswith("a.0 + b.0")


def test_parameters_are_either_the_spms_or_the_backbones() -> None:
    net = inverted()
    gated = sanp.gate(net, IMAGE)
    spm, backbone = gated.spm_parameters(), gated.backbone_parameters()
    assert len(spm) == 2 * 3  # W1, W2 and its bias, in two layers
    assert sum(p.numel() for p in backbone) == sum(p.numel() for p in net.parameters())
    assert {id(p) for p in spm} | {id(p) for p in backbone} == {id(p) for p in gated.parameters()}


def test_the_overhead_is_a_mean_and_two_small_layers_for_each_spm() -> None:
    gated = sanp.gate(nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 4)), IMAGE)
    first = 64 * 3 + 3 * 2 + 2 * 8  # the mean of 3 maps of 8x8; 3 > 2 > 8
    second = 64 * 8 + 8 * 1 + 1 * 4
    assert gated.overhead_flops == first + second


def test_a_budget_must_be_possible() -> None:
    gated = sanp.gate(inverted(), IMAGE)
    assert gated.kept_for("50%") == 0.5
    assert gated.kept_for("3.36k") == 0.5
    with pytest.raises(sanp.SanpError, match="give at least that"):
        gated.kept_for("1%")
    with pytest.raises(sanp.SanpError, match="nothing to prune"):
        gated.kept_for("1M")


def two_inputs() -> nn.Module:
    return Net(lambda n, left, right: n.a(left) + n.b(right), a=block(3, 4), b=block(1, 4))


def test_training_and_evaluation_modes_come_from_the_original() -> None:
    net = inverted().eval()
    assert not sanp.gate(net, IMAGE).training
    assert sanp.gate(net.train(), IMAGE).training


def test_every_sample_has_its_own_gates() -> None:
    gated = sanp.gate(nn.Sequential(block(3, 16), conv(16, 4)), IMAGE).eval()
    images = torch.randn(32, 3, 8, 8) * torch.linspace(0.1, 5, 32).reshape(-1, 1, 1, 1)
    gated.set_budget("50%", images)
    with sanp.record(gated) as gates:
        gated(images)
    assert len({tuple(row) for row in gates["0.0"].decision.tolist()}) > 1
