"""Forwards that are refused before they run."""

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.forward_size import check_forward, check_numbers
from sanp.core.limits import LARGEST_EXAMPLE, LARGEST_FORWARD_FLOPS, LARGEST_FORWARD_NUMBERS


def test_a_forward_of_more_multiply_adds_than_the_limit_is_refused() -> None:
    """A 1x1 convolution of 1000 to 1000 channels takes a million multiply-adds a pixel."""
    net = nn.Conv2d(1000, 1000, 1, bias=False)
    pixels = LARGEST_FORWARD_FLOPS // 10**6
    check_forward(net, torch.empty(1, 1000, 1, pixels, device="meta"), "x")
    with pytest.raises(sanp.SanpError, match="x asks for an example whose forward takes more than 50 G"):
        check_forward(net, torch.empty(1, 1000, 1, pixels + 1, device="meta"), "x")


def test_a_forward_that_holds_more_numbers_than_the_limit_is_refused() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x.view(-1)).neg()

    check_forward(Twice(), torch.empty(LARGEST_FORWARD_NUMBERS // 2, device="meta"), "x")
    with pytest.raises(sanp.SanpError, match="holds more than 150 M numbers"):
        check_forward(Twice(), torch.empty(LARGEST_FORWARD_NUMBERS // 2 + 1, device="meta"), "x")


def test_a_network_that_cannot_be_looked_at_is_left_to_its_own_forward() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * float(x.sum())

    net = Reads()
    check_forward(net, torch.empty(2, 2, device="meta"), "x")
    assert net(torch.ones(2, 2)).tolist() == [4.0, 4.0]  # it was not moved to the meta device


def test_shapes_of_any_size_are_counted_without_overflow() -> None:
    check_numbers([(LARGEST_EXAMPLE,)], "x")
    for shape in ((LARGEST_EXAMPLE + 1,), (2**63, 2**63), (10**4000, 10**4000)):
        with pytest.raises(sanp.SanpError, match="x asks for an example of"):
            check_numbers([shape], "x")
