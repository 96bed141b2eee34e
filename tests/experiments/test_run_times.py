"""Budgets that are times: a run measures its table by itself, says so, and ends with a network that is timed."""

import json
from pathlib import Path

import pytest
import torch

import sanp
from sanp.core.errors import SanpError
from sanp.experiments import run_times
from sanp.experiments.recipe import make_recipe
from sanp.experiments.run import train
from sanp.experiments.run_folder import read_report
from sanp.experiments.run_times import LATENCY, RunTimes
from sanp.gating.amount import LatencyTable
from sanp.gating.trained_budgets import TrainedBudgets
from tests.conftest import SmallNet
from tests.tools import tiny_run

IMAGES = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Clock:
    """In place of the measurement: the whole network takes as many milliseconds as ``dense`` says."""

    def __init__(self, dense: float) -> None:
        self.dense, self.measured = dense, 0

    def __call__(self, network: sanp.GatedNetwork, images: torch.Tensor) -> LatencyTable:
        assert len(images)
        self.measured += 1
        return LatencyTable(((0.1, 0.1 * self.dense), (1.0, self.dense)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock(2.0)
    monkeypatch.setattr(run_times, "latency_table", found)
    return found


def test_a_run_measures_its_table_and_meets_the_time(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 2 ms for the whole network, 1 ms is half of the FLOPs."""
    tiny_run.install(monkeypatch)
    told: list[str] = []
    finished = train(tiny_run.recipe(budget="1ms"), tmp_path / "run", tell=told.append)
    assert finished.pruned.kept == pytest.approx(0.5, abs=0.05)
    assert told[0].startswith("budget 1ms: measuring the time of an image")
    assert told[1] == (
        "an image takes 2 ms dense and 0.2 ms at 10% of the FLOPs on this machine: 1ms is 50.0% of the FLOPs"
    )
    assert clock.measured == 3  # at the start, in training, at the end
    assert read_report(tmp_path / "run")["seconds_per_image"] > 0 and told[-1].endswith("asked for 1ms")


def test_what_training_changes_is_measured_again_and_aimed_at(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trained network takes 2.5 ms in place of 2: then 1 ms is 40 % of the FLOPs."""
    tiny_run.install(monkeypatch)

    def tell(line: str) -> None:
        clock.dense = 2.5 if clock.measured else 2.0

    finished = train(tiny_run.recipe(budget="1ms"), tmp_path / "run", tell=tell)
    assert finished.pruned.kept == pytest.approx(0.4, abs=0.05)
    kept = json.loads((tmp_path / "run" / LATENCY).read_text())
    assert kept == {"points": [[0.1, 0.25], [1.0, 2.5]], "repeated": True}


def test_a_slower_network_gets_less_and_a_faster_one_no_more(clock: Clock, tmp_path: Path) -> None:
    for dense, wanted in ((2.0, 0.5), (2.5, 0.4), (1.5, 0.5)):
        gated = sanp.gate(SmallNet(), IMAGES[:1])
        gated.set_budget(0.5, IMAGES)
        gated.trained = TrainedBudgets(0.5, 0.5)
        clock.dense = dense
        times = RunTimes(tmp_path, "1ms", lambda: IMAGES, lambda line: None)
        times.settle(gated)
        assert gated.set_budget(wanted, IMAGES, force=True) == pytest.approx(wanted, abs=0.01)
        (tmp_path / LATENCY).unlink()
    gated.set_budget(0.5, IMAGES)
    level = gated.layers["features.0"].spm.level
    times.settle(gated)
    assert gated.layers["features.0"].spm.level == level


def test_a_time_that_training_puts_out_of_reach_is_told_and_nothing_is_lost(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trained network takes 30 ms in place of 2, and a tenth of its FLOPs 3 ms."""
    tiny_run.install(monkeypatch)
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        clock.dense = 30.0 if clock.measured else 2.0

    finished = train(tiny_run.recipe(budget="1ms"), tmp_path / "run", tell=tell)
    assert finished.pruned.kept == pytest.approx(0.5, abs=0.05)
    assert "1ms is missed: after training, 10.0% of the FLOPs take 3 ms" in told
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_an_interrupted_run_goes_on_with_its_table(clock: Clock, tmp_path: Path) -> None:
    gated = sanp.gate(SmallNet(), IMAGES[:1])
    first = RunTimes(tmp_path, "1ms", lambda: IMAGES, lambda line: None)(gated)
    clock.dense = 9.0
    again = RunTimes(tmp_path, "1ms", lambda: IMAGES, lambda line: None)
    assert again(gated) == first and clock.measured == 1 and not again.repeated
    for damaged in ("", "[]", '{"points": [[0.1, 1]], "repeated": false}', '{"points": "x", "repeated": 1}'):
        (tmp_path / LATENCY).write_text(damaged)
        with pytest.raises(SanpError, match=r"latency.json is damaged"):
            RunTimes(tmp_path, "1ms", lambda: IMAGES, lambda line: None)


def test_a_time_out_of_reach_is_refused_before_training(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_run.install(monkeypatch)
    with pytest.raises(SanpError, match=r"below 0\.2ms"):
        train(tiny_run.recipe(budget="0.1ms"), tmp_path / "run")
    with pytest.raises(SanpError, match="is for methods that gate: l1 does not"):
        make_recipe({"budget": "1ms", "method": "l1"})
    with pytest.raises(SanpError, match="max_flops 30% is for methods that gate: l1 does not"):
        make_recipe({"max_flops": "30%", "method": "l1"})
