import pytest
import torch
from torch import nn

from sanp.backbones import BACKBONES
from sanp.core.bisection import find_level
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.ranking import below, least_of_each_layer, ranked, removable_groups
from tests.methods.conftest import Residual


def chain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 1), nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.Linear(8, 2))


def test_a_global_threshold_never_takes_a_whole_layer() -> None:
    channel_groups = find_groups(chain(), torch.zeros(1, 1, 2, 2))
    first, second, last = (channel_groups.groups_of(channel_groups.members[path].outputs).tolist() for path in "012")
    scores = dict(zip(first, (0.1, 0.3, 0.2), strict=True))
    scores |= dict(zip(second, (0.5, 0.1, 0.9, 0.4), strict=True))
    scores |= dict(zip(last, (0.8, 0.7), strict=True))
    # At 0.5 the first layer would lose all three: its best, 0.3, stays.
    assert below(channel_groups, scores, 0.5) == {first[0], first[2], second[0], second[1], second[3]}
    assert below(channel_groups, scores, 0.0) == set()
    assert below(channel_groups, scores, 1.0) == {first[0], first[2], second[0], second[1], second[3], last[1]}


def test_of_equal_scores_every_layer_gives_its_share() -> None:
    channel_groups = find_groups(chain(), torch.zeros(1, 1, 2, 2))
    first, second, last = (channel_groups.groups_of(channel_groups.members[path].outputs).tolist() for path in "012")
    equal = ranked(removable_groups(channel_groups), dict.fromkeys(first + second + last, 1.0))
    # Places in the layers of 3, 4 and 2: 0, 1/3, 2/3; 0, 1/4, 1/2, 3/4; 0, 1/2.
    wanted = [first[0], second[0], last[0], second[1], first[1], second[2], last[1], first[2], second[3]]
    assert sorted(equal, key=equal.__getitem__) == wanted
    assert below(channel_groups, equal, 3.0) == set(wanted[:4])
    assert ranked(removable_groups(channel_groups), {first[0]: 0.3, second[3]: 0.1, last[0]: 0.2}) == {
        second[3]: 0.0,
        last[0]: 1.0,
        first[0]: 2.0,
    }


def test_a_rate_takes_the_floor_of_its_share_from_each_layer() -> None:
    channel_groups = find_groups(chain(), torch.zeros(1, 1, 2, 2))
    layers = removable_groups(channel_groups)
    first, second, last = (channel_groups.groups_of(channel_groups.members[path].outputs).tolist() for path in "012")
    scores = dict(zip(first + second + last, (3.0, 1.0, 1.0, 4.0, 2.0, 3.0, 1.0, 2.0, 1.0), strict=True))
    # floor(0.6 x 3) = 1, the first of the two equals; floor(0.6 x 4) = 2; floor(0.6 x 2) = 1
    assert least_of_each_layer(channel_groups, layers, scores, 0.6) == {first[1], second[3], second[1], last[1]}


def test_channels_that_an_addition_ties_can_be_left_out() -> None:
    channel_groups = find_groups(Residual(width=4), torch.zeros(1, 3, 8, 8))
    assert list(removable_groups(channel_groups)) == ["stem", "inner", "down"]
    assert list(removable_groups(channel_groups, added=False)) == ["inner"]


def test_the_level_is_the_one_whose_value_is_nearest() -> None:
    assert find_level(lambda level: 1 - level, 0.35, 0.0, 1.0) == pytest.approx(0.65, abs=1e-3)
    steps = find_level(lambda level: round(4 * (1 - level)) / 4, 0.3, 0.0, 1.0)
    assert round(4 * (1 - steps)) / 4 == 0.25


@pytest.mark.parametrize("backbone", ["m_cifarnet", "vgg19", "resnet18"])
@pytest.mark.parametrize("added", [True, False])
def test_on_the_papers_backbones_an_equal_rate_comes_within_half_a_point(backbone: str, added: bool) -> None:
    channel_groups = find_groups(BACKBONES[backbone](num_classes=10), torch.zeros(1, 3, 32, 32))
    layers, dense = removable_groups(channel_groups, added=added), channel_groups.flops(set())
    equal = {int(group): 0.0 for groups in layers.values() for group in groups}

    def cost_at(rate: float) -> float:
        return channel_groups.flops(least_of_each_layer(channel_groups, layers, equal, rate)) / dense

    for share in (0.7, 0.5, 0.35, 0.25):
        assert cost_at(find_level(cost_at, share, 0.0, 1.0, steps=20)) == pytest.approx(share, abs=0.005)
