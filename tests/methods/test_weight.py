import pytest
import torch
from torch import nn

from sanp.methods.weight import SparseNetwork, nonzero_flops


def sparse() -> SparseNetwork:
    net = nn.Sequential(nn.Conv2d(1, 2, 2, bias=False), nn.Conv2d(2, 1, 1), nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, -2.0, 3.0, -4.0], [5.0, 6.0, 7.0, -8.0]]).view(2, 1, 2, 2))  # type: ignore[operator]
        net[1].weight.copy_(torch.tensor([1.0, 3.0]).view(1, 2, 1, 1))  # type: ignore[operator]
    return SparseNetwork(net, torch.zeros(1, 1, 3, 3))


def test_non_zero_multiply_adds_are_counted_one_by_one() -> None:
    # 4 positions: three weights and one bias for the one output that has any
    assert nonzero_flops(4, torch.tensor([3, 0])) == 4 * (3 + 1)
    network = sparse()
    assert network.cost.per_sample({}).item() == network.dense.dense_flops == 4 * (4 + 1) * 2 + 4 * (2 + 1)
    with torch.no_grad():
        network.net[0].weight[0] = 0  # type: ignore[index]
        network.net[0].weight[1, 0, 0, 0] = 0  # type: ignore[index]
    assert network.cost.per_layer({})["0"].item() == 4 * (3 + 1)
    assert network.cost.open_outputs({})["0"].tolist() == [[0.0, 1.0]]


def test_the_smallest_weights_go_by_their_layers_deviation() -> None:
    network = sparse()
    first, second = network.net[0].weight, network.net[1].weight  # type: ignore[index]
    deviations = (first.std().item(), second.std().item())
    network.drop(0.7)
    q = [(tensor.abs() / deviation) for tensor, deviation in zip((first, second), deviations, strict=True)]
    kept = torch.cat([each[each > 0].flatten() for each in q]).min()
    removed = torch.tensor([size / deviations[0] for size in (1.0, 2.0)])
    assert first.flatten().tolist()[:2] == [0.0, 0.0]
    assert kept > removed.max()
    assert network.cost.per_sample({}).item() / network.dense.dense_flops == pytest.approx(0.7, abs=0.1)


def test_a_dropped_weight_stays_zero_in_training() -> None:
    network = sparse()
    network.drop(0.6)
    zero = network.net[0].weight == 0  # type: ignore[index]
    assert zero.any()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, weight_decay=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.randn(4, 1, 3, 3)).square().sum().backward()
        optimizer.step()
    assert torch.equal(network.net[0].weight == 0, zero)  # type: ignore[index]
