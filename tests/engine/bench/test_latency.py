import itertools
from types import SimpleNamespace

import pytest
import torch

import sanp
from sanp.engine import latency_table
from sanp.engine.bench import latency
from tests.conftest import SmallNet


def test_a_measured_table_rises_with_the_cost() -> None:
    gated = sanp.gate(SmallNet(width=32), torch.zeros(1, 3, 16, 16))
    table = latency_table(gated, torch.randn(16, 3, 16, 16), shares=(1.0, 0.5, 0.25), repeats=5)
    shares, times = zip(*table.points, strict=True)
    assert list(shares) == sorted(shares) and list(times) == sorted(times)
    assert shares[-1] == 1.0 and abs(shares[0] - 0.25) < 0.02 and times[0] > 0
    gated.latency = table
    assert gated.kept_for("1s") == 1.0


def test_the_time_of_a_call_is_what_its_share_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of our own: two images take 1 and 3, 2 and 4, 4 and 6 ms on the three networks, once a round longer."""
    rounds = itertools.cycle([1.0, 3.0, 2.0, 4.0, 4.0, 6.0])
    steps = itertools.chain([9.0] * 6, rounds)
    ticks = itertools.chain.from_iterable((0.0, step / 1e3) for step in steps)
    monkeypatch.setattr(latency, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    gated = sanp.gate(SmallNet(width=32), torch.zeros(1, 3, 16, 16))
    monkeypatch.setattr(latency, "MOST_TIMED", 2)
    gated.latency = latency_table(gated, torch.randn(16, 3, 16, 16), shares=(1.0, 0.5, 0.25), repeats=5)
    (least, fastest), (middle, between), (whole, slowest) = gated.latency.points
    assert (fastest, between, slowest) == pytest.approx((2.0, 3.0, 5.0)) and whole == 1.0
    assert gated.kept_for("2ms") == pytest.approx(least) and gated.kept_for("3ms") == pytest.approx(middle)
    assert gated.kept_for("4ms") == pytest.approx((middle + whole) / 2)


def test_a_slower_time_at_a_lower_cost_is_noise() -> None:
    assert latency._rising([(1.0, 4.0), (0.5, 3.0), (0.25, 3.5)]) == [(0.25, 3.0), (0.5, 3.0), (1.0, 4.0)]


def test_the_dense_point_of_a_trained_network_has_all_gates_open(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randn(16, 3, 16, 16)
    gated = sanp.gate(SmallNet(width=32), images[:1])
    gated.set_budget("30%", images)  # as training leaves it: its thresholds are not those of the dense network
    compiled = []
    monkeypatch.setattr(latency, "compile", lambda network, example, threads: compiled.append(network) or network)
    table = latency_table(gated, images, shares=(1.0, 0.5), repeats=1)
    assert [share for share, _ in table.points] == pytest.approx([0.5, 1.0], abs=0.02)
    with torch.no_grad(), sanp.record(compiled[-1]) as gates:
        compiled[-1](images)
    assert all(bool(made.decision.all()) for made in gates.values())


def test_a_table_measured_in_a_step_of_bf16_is_of_the_native_engine() -> None:
    gated, images = sanp.gate(SmallNet(), torch.zeros(1, 3, 16, 16)), torch.randn(2, 3, 16, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # a warning, that all of it runs in torch, would be an error
        table = latency_table(gated, images, shares=(1.0,), repeats=1)
    assert table.points[0][0] == 1.0
