"""A deep copy of a network is equal to it and shares nothing with it."""

import torch
from torch import nn

from sanp.core.copying import copy_of


def test_a_large_parameter_is_copied_to_a_cache_line_and_shared_ones_stay_shared() -> None:
    net = nn.Sequential(nn.Linear(1024, 1025), nn.Linear(1024, 1025, bias=False), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    net[0].weight.requires_grad_(False)
    copied = copy_of(net)
    assert torch.equal(copied[0].weight, net[0].weight)
    assert copied[0].weight is copied[1].weight
    assert copied[0].weight.data_ptr() % 64 == 0
    assert copied[0].weight.data_ptr() != net[0].weight.data_ptr()
    assert [parameter.requires_grad for parameter in copied.parameters()] == [False, True, True, True]
