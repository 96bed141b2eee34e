"""engine.profile: every operator of a native program with its time, its sizes and its multiply-adds."""

import pytest
import torch
from torch import nn

import sanp
from sanp.core.errors import SanpError
from sanp.engine import profile
from sanp.engine.library import Unavailable, native_library

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


def test_a_profile_has_a_time_for_every_operator_and_counts_multiplications() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 25, 7)).eval()
    x = torch.randn(2, 3, 10, 10)
    found = profile(sanp.compile(net, x), x, calls=3)
    flops = {time.row.how: time.flops for time in found}
    assert flops["linear"] == 8 * 25 * 7
    assert sum(flops.values()) == 8 * 25 * 7 + 8 * 25 * 27
    assert all(time.ms > 0 for time in found)
    assert sum(found.by_kind().values()) == pytest.approx(found.ms)
    assert "3x3/2 3x10x10 to 8x5x5" in str(found)
    assert profile(sanp.compile(net, x), x.numpy(), calls=1).images == 2
    assert len(str(found).splitlines()) == 1 + len(found) + len(found.by_kind())


def test_a_network_with_parts_in_torch_has_no_profile() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LogSigmoid(), nn.Conv2d(4, 4, 3)).eval()
    x = torch.randn(1, 3, 10, 10)
    with pytest.raises(SanpError, match="in torch"):
        profile(sanp.compile(net, x), x)


def test_a_profile_wants_a_call() -> None:
    x = torch.randn(1, 3, 10, 10)
    with pytest.raises(SanpError, match="at least one"):
        profile(sanp.compile(nn.Conv2d(3, 4, 3), x), x, calls=0)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (3, 10, 10), (1, 4, 10, 10)])
def test_a_profile_refuses_a_batch_that_the_network_was_not_compiled_for(shape: tuple[int, ...]) -> None:
    fast = sanp.compile(nn.Conv2d(3, 4, 3), torch.randn(1, 3, 10, 10))
    with pytest.raises(SanpError, match="10"):
        profile(fast, torch.randn(shape))
