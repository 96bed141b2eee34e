import pytest
import torch

import sanp
from sanp.engine import latency_table
from tests.conftest import SmallNet


def test_a_measured_table_makes_a_time_a_budget() -> None:
    gated = sanp.gate(SmallNet(width=32), torch.zeros(1, 3, 16, 16))
    images = torch.randn(16, 3, 16, 16)
    table = latency_table(gated, images, shares=(1.0, 0.5, 0.25), repeats=5)
    shares, times = zip(*table.points, strict=True)
    assert list(shares) == sorted(shares) and list(times) == sorted(times)
    assert shares[-1] == 1.0 and abs(shares[0] - 0.25) < 0.02
    gated.latency = table
    assert gated.share(f"{1.0001 * times[0]:.9f}ms") == pytest.approx(shares[0], abs=1e-2)
    assert gated.share("1s") == 1.0
