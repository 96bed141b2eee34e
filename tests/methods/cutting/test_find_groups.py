import pytest
import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.gating.count import ungated_cost
from sanp.methods.cutting.find_groups import find_groups
from sanp.methods.cutting.groups import FIXED, ChannelGroups, check_removable
from tests.methods.conftest import Residual

IMAGE = torch.zeros(1, 3, 8, 8)


def groups(channel_groups: ChannelGroups, path: str) -> list[int]:
    return channel_groups.groups_of(channel_groups.members[path].outputs).tolist()


def test_layers_joined_by_an_addition_share_their_channels() -> None:
    channel_groups = find_groups(Residual(width=4), IMAGE)
    assert groups(channel_groups, "stem") == groups(channel_groups, "outer")
    assert groups(channel_groups, "down") == groups(channel_groups, "shortcut")
    assert not set(groups(channel_groups, "stem")) & set(groups(channel_groups, "inner"))
    added = {channel_groups.group_of(channel) for channel in channel_groups.added}
    assert added == set(groups(channel_groups, "stem")) | set(groups(channel_groups, "down"))
    assert channel_groups.norm_of == {"stem": "stem_norm", "inner": "inner_norm", "outer": "outer_norm"}


def test_the_cost_without_channels_is_counted_by_hand() -> None:
    channel_groups = find_groups(Residual(width=4), IMAGE)
    removed = {groups(channel_groups, "inner")[0], groups(channel_groups, "stem")[1]}
    # 64 positions: stem 3 > 3, inner 3 > 3, outer 3 > 3; 16 positions: down 3 > 8 by 9 taps, shortcut 3 > 8 by 1.
    by_hand = 64 * (3 * 9 + 1) * 3 + 2 * 64 * (3 * 9 + 1) * 3 + 16 * (3 * 9 + 1) * 8 + 16 * (3 + 1) * 8
    assert channel_groups.flops(removed) == by_hand
    assert channel_groups.flops(set()) == ungated_cost(Residual(width=4), IMAGE).dense_flops


class Squeezed(nn.Module):
    """Squeeze-and-excitation, a depthwise convolution, and a flatten before the linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.squeeze, self.excite = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm = nn.BatchNorm2d(6)
        self.classifier = nn.Linear(6 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x))
        x = x * torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.depthwise(x))), 2)
        y: Tensor = self.classifier(x.flatten(1))
        return y


def test_what_multiplies_a_channel_goes_with_it() -> None:
    channel_groups = find_groups(Squeezed(), IMAGE)
    for path in ("excite", "depthwise", "norm"):
        assert groups(channel_groups, path) == groups(channel_groups, "conv")
    assert FIXED not in groups(channel_groups, "conv")
    inputs = channel_groups.members["classifier"].inputs
    assert inputs is not None
    assert channel_groups.groups_of(inputs).tolist() == [
        group for group in groups(channel_groups, "conv") for _ in range(16)
    ]


class NormAfterConcat(nn.Module):
    """As in DenseNet: a removed channel would be a constant after this batch norm, not a zero."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.Conv2d(8, 4, 1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(torch.relu(self.norm(torch.cat((self.a(x), self.b(x)), 1)))).mean((2, 3))
        return y


class Shuffled(nn.Module):
    """Channels that are split by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = x.view(len(x), 2, 4, *x.shape[2:]).transpose(1, 2).flatten(1, 2)
        y: Tensor = self.b(x).mean((2, 3))
        return y


class Halved(Shuffled):
    """Half of the channels are used."""

    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.b(self.a(x)[:, :4]).mean((2, 3))
        return y


@pytest.mark.parametrize("network", [NormAfterConcat, Shuffled, Halved])
def test_channels_that_something_counts_on_stay(network: type[nn.Module]) -> None:
    net = network()
    channel_groups = find_groups(net, IMAGE)
    assert set(groups(channel_groups, "a")) == {FIXED}
    with pytest.raises(SanpError, match="no channel that can be taken out"):
        check_removable(channel_groups, net)


def test_a_map_that_weighs_all_channels_does_not_tie_them() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.weigh, self.last = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 1, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            y: Tensor = self.last(x * torch.sigmoid(self.weigh(x))).mean((2, 3))
            return y

    channel_groups = find_groups(Attention(), IMAGE)
    assert len(set(groups(channel_groups, "conv")) - {FIXED}) == 4
    assert groups(channel_groups, "weigh") == [FIXED]
