import torch
from torch import nn

from sanp.testing.nonzero_count import count, nonzero_channels


def test_the_independent_count_by_hand() -> None:
    net = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 2, 1, groups=2))
    with torch.no_grad():
        net[0].weight[1] = 0  # a channel that is always zero
    with count(net) as calls:
        net(torch.randn(1, 2, 5, 5))
    assert [float(call.flops()) for call in calls] == [9 * (2 * 9 + 1) * 4, 9 * ((1 + 1) * 1 + (2 + 1) * 1)]
    assert nonzero_channels(torch.tensor([[[0.0, 0.0], [0.0, -1.0]]])).tolist() == [[False, True]]
