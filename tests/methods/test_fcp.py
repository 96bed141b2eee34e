import copy

import torch
from torch import nn

from sanp.methods.cutting.clusters import k_means, merge, spread
from sanp.methods.cutting.cut import cut
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.ranking import removable_groups
from sanp.methods.fcp import num_clusters
from tests.methods.conftest import Residual


def test_the_number_of_clusters_is_the_ceiling() -> None:
    assert [num_clusters(10, rate) for rate in (0.0, 0.25, 0.3, 0.99, 1.0)] == [10, 8, 7, 1, 1]


def test_k_means_finds_the_pairs_and_leaves_no_cluster_empty() -> None:
    points = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.1, 0.0], [10.0, 0.2], [5.0, 5.0]])
    assigned = k_means(points, 3).tolist()
    assert assigned[0] == assigned[2] and assigned[1] == assigned[3]
    assert len(set(assigned)) == 3
    assert sorted(k_means(torch.ones(4, 2), 3).unique().tolist()) == [0, 1, 2]


def test_the_spread_is_the_squared_distance_from_the_means() -> None:
    rows = torch.tensor([[1.0], [3.0], [10.0]])
    # The mean of 1 and 3 is 2: 1 + 1; 10 is alone: 0.
    assert spread(rows, torch.tensor([0, 0, 1]), 2).item() == 2.0


def test_merged_filters_are_means_and_the_next_kernels_sums() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU(), nn.Conv2d(3, 1, 1), nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([2.0, 4.0, 7.0]).view(3, 1, 1, 1))  # type: ignore[operator]
        net[0].bias.copy_(torch.tensor([1.0, 3.0, 0.0]))  # type: ignore[operator]
        net[2].weight.copy_(torch.tensor([10.0, 20.0, 30.0]).view(1, 3, 1, 1))  # type: ignore[operator]
    channel_groups = find_groups(net, torch.zeros(1, 1, 1, 1))
    groups = removable_groups(channel_groups)["0"]
    removed = merge(net, channel_groups, groups, torch.tensor([0, 0, 1]))
    assert removed == {int(groups[1])}
    smaller = cut(net, channel_groups, removed, torch.ones(1, 1, 1, 1), method="fcp").net
    assert smaller[0].weight.flatten().tolist() == [3.0, 7.0]  # type: ignore[index]
    assert smaller[0].bias.tolist() == [2.0, 0.0]  # type: ignore[index]
    assert smaller[2].weight.flatten().tolist() == [30.0, 30.0]  # type: ignore[index]


def test_merging_equal_channels_changes_nothing_across_an_addition() -> None:
    net = Residual(width=4).eval()
    with torch.no_grad():
        for path in ("stem", "stem_norm", "outer", "outer_norm"):
            module = net.get_submodule(path)
            for name in ("weight", "bias", "running_mean", "running_var"):
                tensor = getattr(module, name, None)
                if isinstance(tensor, torch.Tensor):
                    tensor.copy_(torch.rand_like(tensor) + 0.5)
                    tensor[2] = tensor[0]  # channels 0 and 2 are made alike on both sides of the addition
    x = torch.randn(3, 3, 8, 8)
    before = net(x)
    merged = copy.deepcopy(net)
    channel_groups = find_groups(merged, x[:1])
    groups = removable_groups(channel_groups)["stem"]
    removed = merge(merged, channel_groups, groups, torch.tensor([0, 1, 0, 2]))
    smaller = cut(merged, channel_groups, removed, x[:1], method="fcp")
    torch.testing.assert_close(smaller.eval()(x), before, rtol=0, atol=1e-5)
    assert smaller.net.get_submodule("stem").weight.shape[0] == 3
