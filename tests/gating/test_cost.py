"""FLOPs worked out by hand: positions x (live inputs x taps + 1) x live outputs, layer by layer."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import sanp
from sanp.gating.cost import CostModel, dense_flops
from sanp.gating.count import ungated_cost


def conv(inputs: int, outputs: int, kernel: int = 1, **settings: object) -> nn.Sequential:
    """Convolution, batch norm, ReLU; the map keeps its size."""
    layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **settings)  # type: ignore[arg-type]
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


def gates(**of: list[int]) -> dict[str, Tensor]:
    """One sample's decisions; layers are named as ``a`` for the convolution in the block ``a``."""
    return {f"{name}.0": torch.tensor([values], dtype=torch.float32) for name, values in of.items()}


def costs(net: nn.Module, size: int, **of: list[int]) -> dict[str, float]:
    gated = sanp.gate(net, torch.randn(1, 3, size, size))
    return {name.removesuffix(".0"): float(cost) for name, cost in gated.cost.per_layer(gates(**of)).items()}


class Blocks(nn.Module):
    """Named blocks and a function of them, so that a test reads as the network it is about."""

    def __init__(self, forward: object, **blocks: nn.Module) -> None:
        super().__init__()
        for name, block in blocks.items():
            setattr(self, name, block)
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)  # type: ignore[operator,no-any-return]


def test_a_chain_costs_live_inputs_times_live_outputs() -> None:
    net = Blocks(lambda n, x: n.b(n.a(x)), a=conv(3, 4, 3), b=conv(4, 6, 3))
    found = costs(net, 8, a=[1, 0, 1, 0], b=[1, 1, 1, 0, 0, 0])
    assert found == {"a": 64 * (3 * 9 + 1) * 2, "b": 64 * (2 * 9 + 1) * 3}


def test_an_addition_keeps_a_channel_that_either_branch_keeps() -> None:
    def forward(n: Blocks, x: Tensor) -> Tensor:
        x = n.stem(x)
        return n.head(x + n.b(n.a(x)))  # type: ignore[no-any-return]

    net = Blocks(forward, stem=conv(3, 4), a=conv(4, 4, 3), b=conv(4, 4, 3), head=conv(4, 5))
    found = costs(net, 4, stem=[1, 1, 0, 0], a=[1, 0, 0, 0], b=[0, 1, 1, 0], head=[1, 1, 1, 1, 1])
    assert found == {
        "stem": 16 * (3 + 1) * 2,
        "a": 16 * (2 * 9 + 1) * 1,
        "b": 16 * (1 * 9 + 1) * 2,
        "head": 16 * (3 + 1) * 5,  # channels 0, 1 and 2 are live in the sum
    }


def test_a_concatenation_lays_gates_side_by_side() -> None:
    net = Blocks(lambda n, x: n.head(torch.cat((n.a(x), n.b(x)), 1)), a=conv(3, 2), b=conv(3, 4), head=conv(6, 3))
    found = costs(net, 4, a=[0, 1], b=[1, 1, 1, 0], head=[1, 0, 0])
    assert found["head"] == 16 * (1 + 3 + 1) * 1


def test_a_split_and_a_shuffle_take_the_gates_with_them() -> None:
    def forward(n: Blocks, x: Tensor) -> Tensor:
        kept, changed = n.stem(x).chunk(2, 1)
        y = torch.cat((kept, n.a(changed)), 1)
        y = y.reshape(len(x), 2, 4, 4, 4).transpose(1, 2).reshape(len(x), 8, 4, 4)
        return n.head(y[:, :4])  # type: ignore[no-any-return]

    net = Blocks(forward, stem=conv(3, 8), a=conv(4, 4), head=conv(4, 1))
    found = costs(net, 4, stem=[1, 0, 0, 1, 1, 1, 0, 0], a=[1, 1, 0, 0], head=[1])
    assert found["a"] == 16 * (2 + 1) * 2  # the second half of the stem: channels 4 and 5
    assert found["head"] == 16 * (3 + 1) * 1  # shuffled: stem 0, a 0, stem 1, a 1, of which stem 1 is closed


def test_a_product_is_zero_where_either_factor_is() -> None:
    net = Blocks(lambda n, x: n.head(n.a(x) * n.b(x)), a=conv(3, 4), b=conv(3, 4), head=conv(4, 2))
    found = costs(net, 4, a=[1, 1, 0, 0], b=[0, 1, 1, 0], head=[1, 1])
    assert found["head"] == 16 * (1 + 1) * 2


def test_squeeze_and_excitation_leaves_the_gates_of_the_features() -> None:
    def forward(n: Blocks, x: Tensor) -> Tensor:
        y = n.a(x)
        squeezed = y.mean((2, 3), keepdim=True)
        return n.head(y * torch.sigmoid(n.up(n.down(squeezed))))  # type: ignore[no-any-return]

    net = Blocks(forward, a=conv(3, 4), down=conv(4, 2), up=conv(2, 4), head=conv(4, 2))
    found = costs(net, 4, a=[1, 1, 1, 0], head=[1, 1])
    assert found["down"] == 1 * (3 + 1) * 2  # on one pixel: no gate of its own
    assert found["up"] == 1 * (2 + 1) * 4
    assert found["head"] == 16 * (3 + 1) * 2  # a sigmoid is never zero: only the gates of a count


def test_a_depthwise_convolution_shares_the_gates_of_its_input() -> None:
    net = Blocks(
        lambda n, x: n.project(n.depthwise(n.expand(x))),
        expand=conv(3, 6),
        depthwise=conv(6, 6, 3, groups=6),
        project=conv(6, 2),
    )
    found = costs(net, 4, expand=[1, 1, 0, 0, 0, 0], project=[1, 1])
    assert found == {"expand": 16 * 4 * 2, "depthwise": 16 * (9 + 1) * 2, "project": 16 * (2 + 1) * 2}


def test_grouped_convolutions_are_counted_group_by_group() -> None:
    net = Blocks(lambda n, x: n.b(n.a(x)), a=conv(3, 4), b=conv(4, 4, 3, groups=2))
    found = costs(net, 4, a=[1, 1, 0, 1], b=[1, 0, 1, 1])
    assert found["b"] == 16 * ((2 * 9 + 1) * 1 + (1 * 9 + 1) * 2)


def test_a_layer_that_is_skipped_or_an_unknown_operator_is_dense() -> None:
    net = Blocks(lambda n, x: n.b(n.a(x).cumsum(1)), a=conv(3, 4), b=conv(4, 2))
    gated = sanp.gate(net, torch.randn(1, 3, 4, 4), skip=["b.0"])
    assert gated.skipped == {"b.0": "named in skip"}
    assert gated.cost.topology.unknown == {"cumsum": 1}
    found = gated.cost.per_layer(gates(a=[1, 0, 0, 0]))
    assert float(found["b.0"]) == 16 * (4 + 1) * 2
    assert "cumsum" in repr(gated)


def test_linear_layers_are_counted_apart_with_their_sparse_inputs() -> None:
    net = Blocks(lambda n, x: n.fc(n.a(x).flatten(1)), a=conv(3, 4), fc=nn.Linear(4 * 16, 10))
    gated = sanp.gate(net, torch.randn(1, 3, 4, 4))
    assert gated.dense_flops == 16 * 4 * 4  # convolutions only, as the paper counts
    assert gated.cost.dense_linear_flops == (64 + 1) * 10
    assert float(gated.cost.linear_per_layer(gates(a=[0, 1, 0, 0]))["fc"]) == (16 + 1) * 10


def cost_of_a_chain() -> CostModel:
    net = Blocks(lambda n, x: n.b(n.a(x)), a=conv(3, 4), b=conv(4, 6))
    return sanp.gate(net, torch.randn(1, 3, 4, 4)).cost


def test_the_floor_is_one_open_channel_in_each_gated_layer() -> None:
    assert cost_of_a_chain().floor_flops == 16 * 4 * 1 + 16 * 2 * 1


def test_without_decisions_all_channels_are_counted() -> None:
    cost = cost_of_a_chain()
    assert float(cost.per_sample({})) == cost.dense_flops == 16 * 4 * 4 + 16 * 5 * 6


def test_a_layer_that_did_not_run_has_no_flops() -> None:
    assert float(cost_of_a_chain().per_sample(gates(a=[1, 1, 0, 0]))) == 16 * 4 * 2


def test_decisions_of_a_layer_that_ran_too_often_are_an_error() -> None:
    with pytest.raises(sanp.SanpError, match=r"'b.0:2'"):
        cost_of_a_chain().per_sample({"b.0:2": torch.ones(1, 6)})


def test_every_sample_has_its_own_flops_with_a_gradient_to_its_gates() -> None:
    net = Blocks(lambda n, x: n.b(n.a(x)), a=conv(3, 4), b=conv(4, 2))
    cost = sanp.gate(net, torch.randn(1, 3, 4, 4)).cost
    a = torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1]], requires_grad=True)
    b = torch.tensor([[1.0, 1], [1, 0]], requires_grad=True)
    found = cost.per_sample({"a.0": a, "b.0": b})
    assert found.tolist() == [16 * 4 * 1 + 16 * 2 * 2, 16 * 4 * 4 + 16 * 5 * 1]
    found.sum().backward()
    assert a.grad is not None and a.grad[0, 0] == 16 * 4 + 16 * 2  # its own filter, and one input of both of b's


def test_without_residuals_the_papers_count_is_the_true_one() -> None:
    """Half of the depthwise layer's channels: each costs nine taps, as in the whole layer."""
    net = Blocks(lambda n, x: n.head(n.deep(n.a(x))), a=conv(3, 4), deep=conv(4, 4, 3, groups=4), head=conv(4, 5))
    cost = sanp.gate(net, torch.randn(1, 3, 4, 4)).cost
    decided = gates(a=[1, 1, 0, 0], head=[1, 1, 1, 1, 1])
    by_hand = 16 * 4 * 2 + 16 * (9 + 1) * 2 + 16 * (2 + 1) * 5
    assert float(cost.paper_per_sample(decided)) == float(cost.per_sample(decided)) == by_hand


def test_the_papers_count_takes_the_density_of_the_convolution_before() -> None:
    def forward(n: Blocks, x: Tensor) -> Tensor:
        x = n.stem(x)
        return n.head(x + n.a(x))  # type: ignore[no-any-return]

    net = Blocks(forward, stem=conv(3, 4), a=conv(4, 4), head=conv(4, 5))
    cost = sanp.gate(net, torch.randn(1, 3, 4, 4)).cost
    decided = gates(stem=[1, 1, 0, 0], a=[0, 0, 1, 0], head=[1, 1, 1, 1, 1])
    assert float(cost.paper_per_sample(decided)) == 16 * 4 * 2 + 16 * 3 * 1 + 16 * (1 + 1) * 5
    assert float(cost.per_sample(decided)) == 16 * 4 * 2 + 16 * 3 * 1 + 16 * (3 + 1) * 5


@pytest.mark.parametrize(
    "net, shape",
    [
        (nn.Sequential(nn.Conv1d(3, 8, 5, stride=2, padding=1), nn.ReLU(), nn.Conv1d(8, 4, 3, dilation=2)), (1, 3, 40)),
        (nn.Sequential(nn.Conv3d(2, 6, 3), nn.ReLU(), nn.Conv3d(6, 4, (1, 3, 3), groups=2)), (1, 2, 6, 8, 8)),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 6, 4, stride=2)), (1, 3, 9, 9)),
        (
            nn.Sequential(nn.Conv2d(3, 8, 3, padding_mode="circular", padding=1), nn.Conv2d(8, 8, 3, groups=8)),
            (1, 3, 9, 9),
        ),
    ],
)
def test_dense_flops_are_pytorchs_own_count_plus_one_for_each_output(net: nn.Module, shape: tuple[int, ...]) -> None:
    cost = ungated_cost(net, torch.randn(shape))
    with FlopCounterMode(display=False) as counter:
        net(torch.randn(shape))
    ones = sum(layer.positions * layer.out_channels for layer in cost.layers)
    assert 2 * (cost.dense_flops - ones) == counter.get_total_flops()
    assert cost.dense_flops == sum(dense_flops(layer) for layer in cost.layers)
