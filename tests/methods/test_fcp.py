import copy

import pytest
import torch
from torch import nn

from sanp.methods.cutting.clusters import cluster_spread, farthest_first, k_means, merge_clusters, nearest_to_mean
from sanp.methods.cutting.cut import cut
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.ranking import removable_groups
from sanp.methods.fcp import FCP, FCPConfig, clusters_within, num_clusters, relative_radii
from sanp.training.config import FitConfig
from sanp.training.task import Task
from sanp.training.watching import run_stages
from tests.methods.conftest import Residual, task


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
    assert cluster_spread(rows, torch.tensor([0, 0, 1]), 2).item() == 2.0


def test_merged_filters_are_means_and_the_next_kernels_sums() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU(), nn.Conv2d(3, 1, 1), nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([2.0, 4.0, 7.0]).view(3, 1, 1, 1))  # type: ignore[operator]
        net[0].bias.copy_(torch.tensor([1.0, 3.0, 0.0]))  # type: ignore[operator]
        net[2].weight.copy_(torch.tensor([10.0, 20.0, 30.0]).view(1, 3, 1, 1))  # type: ignore[operator]
    channel_groups = find_groups(net, torch.zeros(1, 1, 1, 1))
    groups = removable_groups(channel_groups)["0"]
    removed = merge_clusters(net, channel_groups, groups, torch.tensor([0, 0, 1]))
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
    removed = merge_clusters(merged, channel_groups, groups, torch.tensor([0, 1, 0, 2]))
    smaller = cut(merged, channel_groups, removed, x[:1], method="fcp")
    torch.testing.assert_close(smaller.eval()(x), before, rtol=0, atol=1e-5)
    assert smaller.net.get_submodule("stem").weight.shape[0] == 3


def test_radii_are_the_distances_from_the_nearest_filter_so_far() -> None:
    # Lengths 0, 3, 4, 5: the root mean square is sqrt(50 / 4) = 3.5355. From 5 the farthest is 0 (5 away), then 3 (2
    # away from 5, 3 from 0), then 4 (1 away).
    points = torch.tensor([[0.0], [3.0], [4.0], [5.0]])
    assert farthest_first(points, 4) == ([3, 0, 1, 2], [5.0, 2.0, 1.0, 0.0])
    assert relative_radii(points) == pytest.approx([5 / 12.5**0.5, 2 / 12.5**0.5, 1 / 12.5**0.5, 0.0])
    assert relative_radii(10 * points) == pytest.approx(relative_radii(points))


def test_one_distance_gives_each_layer_its_own_number_of_clusters() -> None:
    near, far = [0.3, 0.2, 0.1, 0.0], [1.2, 1.0, 0.8, 0.0]
    counts = [(clusters_within(near, t, 0.1), clusters_within(far, t, 0.1)) for t in (-1.0, 0.0, 0.2, 1.0, 9.0)]
    assert counts == [(4, 4), (4, 4), (2, 4), (1, 2), (1, 1)]
    assert clusters_within(near, 9.0, least=0.6) == 3  # ceil(0.6 · 4)


def test_the_filter_nearest_to_its_cluster_s_mean_is_kept() -> None:
    points = torch.tensor([[0.0], [2.0], [5.0], [9.0]])
    # The mean of 0, 2 and 5 is 2.33, nearest to 2; 9 is alone.
    assert nearest_to_mean(points, torch.tensor([0, 0, 0, 1])).tolist() == [1, 3]


def two_layers() -> nn.Sequential:
    """The filters 2, 4, 4.5 (bias 0) and the kernels 10, 20, 30 that read them."""
    net = nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU(), nn.Conv2d(3, 1, 1), nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([2.0, 4.0, 4.5]).view(3, 1, 1, 1))  # type: ignore[operator]
        net[0].bias.zero_()  # type: ignore[operator]
        net[2].weight.copy_(torch.tensor([10.0, 20.0, 30.0]).view(1, 3, 1, 1))  # type: ignore[operator]
    return net


@pytest.mark.parametrize(
    "config, kept, readers",
    [(FCPConfig(), [2.0, 4.0], [10.0, 20.0]), (FCPConfig(merge="mean"), [2.0, 4.25], [10.0, 50.0])],
)
def test_a_cluster_becomes_one_of_its_filters_or_their_mean_with_the_next_kernels_summed(
    config: FCPConfig, kept: list[float], readers: list[float]
) -> None:
    # One position, FLOPs (1 + 1) 3 + (3 + 1) 1 = 10. With two channels 2 · 2 + 3 = 7.
    image = torch.ones(2, 1, 1, 1)
    loader = [(image, torch.zeros(2, dtype=torch.long))]
    still = FitConfig(warmup_epochs=0, joint_epochs=0, norm_batches=0)
    pruned = run_stages(FCP(config=config).stages(two_layers(), Task(loader=loader, budget="70%", config=still)))
    first, second = (pruned.get_submodule(f"net.{number}").weight for number in (0, 2))
    assert isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    assert first.flatten().tolist() == kept
    assert second.flatten().tolist() == readers


def test_layers_whose_filters_are_alike_lose_more_of_them() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))
    with torch.no_grad():
        net[0].weight.copy_(1 + 0.1 * torch.randn(16, 3, 3, 3))  # type: ignore[operator]
        net[2].weight.copy_(torch.randn(16, 16, 3, 3))  # type: ignore[operator]
    whole = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    still = FitConfig(warmup_epochs=0, joint_epochs=0, norm_batches=0)
    left = {}
    for rates in ("layer", "same"):
        method = FCP(config=FCPConfig(rates=rates))  # type: ignore[arg-type]
        pruned = run_stages(method.stages(whole, task("50%", config=still)))
        left[rates] = [int(pruned.get_submodule(f"net.{number}").out_channels) for number in (0, 2)]  # type: ignore[arg-type]
    assert left["layer"][0] < 10 and left["layer"][1] == 16
    assert left["same"][0] == left["same"][1]
