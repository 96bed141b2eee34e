"""The curve of a network under its dial: measured once, kept beside it, and drawn on the page and in the explorer."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import sanp.experiments.run
from sanp.evaluation import evaluate
from sanp.experiments.run_folder import evaluation_batches, load_run
from sanp.gating.network import GatedNetwork
from sanp.report import dial_curve
from sanp.report.charts.dial_charts import dial_charts
from sanp.report.dial_curve import CURVE, CURVE_POINTS, curve_of
from sanp.report.page import render
from sanp.report.run_data import read_runs
from tests.tools import tiny_run

FIT = {"pretrain_epochs": 2, "warmup_epochs": 1, "joint_epochs": 16, "precision": "fp32", "norm_batches": 2}


@pytest.fixture(scope="module")
def ranged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run for a range of budgets."""
    folder = tmp_path_factory.mktemp("runs") / "ranged"
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        tiny_run.install(patch)
        sanp.experiments.run.train(tiny_run.recipe(budget="30%..60%", fit=FIT), folder)
    return folder


@pytest.fixture
def run(ranged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ranged, tmp_path / "ranged"))


def test_its_points_are_what_an_evaluation_finds(run: Path) -> None:
    curve = curve_of(run)
    assert curve is not None and curve.images == 128 and len(curve.points) == CURVE_POINTS
    dataset = tiny_run.squares()
    network = load_run(run, dataset)
    assert isinstance(network, GatedNetwork) and network.dial is not None
    for place, budget in ((0, network.dial.low), (CURVE_POINTS - 1, network.dial.high)):
        network.set_budget(budget)
        report = evaluate(network, evaluation_batches(dataset), progress=False)
        assert curve.points[place].accuracy == report.accuracy
        assert curve.points[place].kept == pytest.approx(report.kept, abs=1e-6)
    assert all(point.milliseconds is not None and 0 < point.milliseconds < 100 for point in curve.points)


def test_it_is_measured_once_and_again_for_another_network(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = curve_of(run)
    with monkeypatch.context() as patch:
        patch.setattr(dial_curve, "measure_curve", None)
        assert curve_of(run) == first
    kept = json.loads((run / CURVE).read_text())
    for damage in ({"model": "0"}, {"points": []}, {"points": [{"kept": 2.0}] * 9}, {"images": "many"}):
        (run / CURVE).write_text(json.dumps({**kept, **damage}))
        again = curve_of(run)
        assert again is not None and [p.accuracy for p in again.points] == [p.accuracy for p in first.points]  # type: ignore[union-attr]


def test_a_network_for_one_budget_has_none(folder: Path) -> None:
    assert curve_of(folder) is None and not (folder / CURVE).exists()
    assert "Under the dial" not in render(read_runs([folder]))


def test_the_page_has_error_against_cost_and_against_time(run: Path) -> None:
    (data,) = read_runs([run])
    cost, taken = dial_charts(data)
    assert data.curve is not None
    assert list(cost.figure.data[0].x) == [point.kept for point in data.curve.points]
    assert list(cost.figure.data[0].y) == [1 - point.accuracy for point in data.curve.points]
    assert list(taken.figure.data[0].x) == [point.milliseconds for point in data.curve.points]
    page = render([data])
    assert "Under the dial" in page and cost.title in page and taken.title in page


def test_the_explorer_shows_the_curve_and_where_the_slider_stands(run: Path) -> None:
    pytest.importorskip("dash", reason="the explorer needs dash: pip install 'sanp[explore]'")
    from sanp.report.explorer.app import show_answer
    from sanp.report.explorer.explorer import Explorer

    explorer = Explorer(run)
    assert explorer.curve is not None
    for place in (0, len(explorer.settings) - 1):
        shown = show_answer(explorer)({"position": 3}, place, False)
        cost, taken = shown[-2:]
        assert list(cost.data[0].y) == list(taken.data[0].y) == [point.accuracy for point in explorer.curve.points]
        assert cost.layout.shapes[0].x0 == explorer.settings[place].kept
        assert "128 test images are right" in shown[4] and " ms an image" in shown[4]
