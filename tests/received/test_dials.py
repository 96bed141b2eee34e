"""What a header says of a network's dial, cap, budgets, packed tensors and inputs, if no sanp.save wrote it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import sanp
from sanp.core.limits import LARGEST_NUMBER
from sanp.experiments.run import resumed
from sanp.gating.dial import Dial
from sanp.report.dial_curve import CURVE_POINTS, _read
from tests.cli.conftest import Run
from tests.core.test_files import within
from tests.received.test_headers import HUGE, with_gates, with_header
from tests.tools import tiny_run

DAMAGED = "thresholds or budget are damaged"
DIAL = {"shares": [0.3, 0.5, 0.7], "thresholds": [0.9, 0.4, -0.1]}


@pytest.mark.parametrize("thresholds", [[1e300, 0.4, -0.1], [0.9, 0.4, -1e39], [1e31, 1.0, 0.0]])
def test_a_dial_whose_thresholds_single_precision_cannot_hold_is_refused(
    tmp_path: Path, thresholds: list[float]
) -> None:
    with_gates(tmp_path / "net", lambda gates: gates.update(dial={**DIAL, "thresholds": thresholds}))
    with pytest.raises(sanp.SanpError, match=DAMAGED):
        sanp.load(tmp_path / "net", tiny_run.Tiny())
    whole = Dial((0.3, 0.7), (LARGEST_NUMBER, -LARGEST_NUMBER))
    gated = sanp.gate(tiny_run.Tiny(), torch.zeros(1, 3, 8, 8))
    gated.dial = whole
    gated.set_budget("70%")  # the largest that is read can be set


@pytest.mark.parametrize(
    "change",
    [{"dial": {**DIAL, "shares": ["0.3", "0.5", "0.7"]}}, {"dial": {"shares": "01", "thresholds": "10"}},
     {"dial": {"shares": [0.5, True], "thresholds": [True, False]}}, {"trained": {"low": "0.1", "high": "1"}},
     {"trained": {"low": 0.5, "high": True}}],
)  # fmt: skip
def test_text_and_truth_are_no_numbers(tmp_path: Path, change: dict[str, Any]) -> None:
    with_gates(tmp_path / "net", lambda gates: gates.update(change))
    with pytest.raises(sanp.SanpError, match=DAMAGED):
        sanp.load(tmp_path / "net", tiny_run.Tiny())


RESERVE = {"features.0": 8, "features.3": 6, "features.6": 8}


@pytest.mark.parametrize("reserve", [[8, 6, 8], 7, None, *({**RESERVE, "features.0": v} for v in (1.9, True, "3"))])
def test_a_reserve_of_a_cap_that_is_no_count_is_refused(tmp_path: Path, reserve: object) -> None:
    amount = {"value": 0.9, "unit": "share"}
    with_gates(tmp_path / "sound", lambda gates: gates.update(cap={"amount": amount, "reserve": RESERVE}))
    assert sanp.load(tmp_path / "sound", tiny_run.Tiny()).cap is not None
    with_gates(tmp_path / "net", lambda gates: gates.update(cap={"amount": amount, "reserve": reserve}))
    with pytest.raises(sanp.SanpError, match=DAMAGED):
        sanp.load(tmp_path / "net", tiny_run.Tiny())


@pytest.mark.parametrize("name", ["nobody", "features.0.spm.threshold"])
def test_a_packed_tensor_that_the_file_does_not_have_is_refused(tmp_path: Path, name: str) -> None:
    with_header(tmp_path / "net", lambda header: header.update(packed={name: {"rows": "1", "columns": "1"}}))
    with pytest.raises(sanp.SanpError, match=f"packs '{name}', and the file has no such tensor"):
        sanp.load(tmp_path / "net", tiny_run.Tiny())


@pytest.mark.parametrize(
    ("change", "why"),
    [({"input_shapes": [[1]] * 1_000_000}, "more than 100 inputs"),
     ({"input_shapes": [[1] * 1_000_000]}, "over 16 dimensions"),
     ({"skip": ["features.0"] * 500_000}, "skip has more than 10000 names"),
     ({"skip": ["*a" * 1000]}, "over 1000 letters")],
    ids=range(4),
)  # fmt: skip
def test_a_header_with_a_list_that_no_network_has_is_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    with_gates(tmp_path / "net", lambda gates: gates.update(change))
    with pytest.raises(sanp.SanpError, match=why):
        sanp.load(tmp_path / "net", tiny_run.Tiny())


def test_a_form_with_a_shape_of_many_dimensions_is_refused(tmp_path: Path) -> None:
    form = {"kind": "sparse", "method": "weight", "input_shape": [1] * 1_000_000}
    with_header(tmp_path / "net", lambda header: header.update(gates=None, form=form))
    with pytest.raises(sanp.SanpError, match="over 16 dimensions"):
        sanp.load(tmp_path / "net", tiny_run.Tiny())


POINTS = [[0.1, 0.01], [0.5, 0.02], [1.0, 0.03]]


@pytest.mark.parametrize(
    "points",
    [[[0.1, float("nan")], [1, 0.03]], [[0.1, 0.05], [1, 0.01]], [[0.1, -1], [1, 0.03]], [[0.1, 0.01], [HUGE, 0.03]],
     [[0.1, 0.01], [1, float("inf")]], [[0, 0.01], [1, 0.03]], [[0.1, 0.01], [9, 0.03]], [[0.5, 0.02], [0.5, 0.02]],
     [["0.1", 0.01], [1, 0.03]], [[1, 2, 3], [1, 2, 3]], [], [[1, 1]]],
    ids=range(12),
)  # fmt: skip
def test_a_table_of_times_that_no_run_measured_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: list[Any]
) -> None:
    tiny_run.install(monkeypatch)
    (tmp_path / "config.toml").write_text(tiny_run.recipe(budget="0.02ms").as_toml())
    (tmp_path / "latency.json").write_text(json.dumps({"points": points, "repeated": False}))
    with pytest.raises(sanp.SanpError, match=r"latency.json is damaged"):
        resumed(tmp_path)


@pytest.mark.parametrize(
    "change", [{"images": 1e308}, {"images": HUGE}, {"images": True}, {"images": -1}, {"milliseconds": 1e300}]
)
def test_a_curve_with_numbers_that_nobody_measured_is_as_none(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "dial.json"
    found: dict[str, Any] = {"model": "x", "images": 10}
    point = {"kept": 0.5, "accuracy": 0.5, "milliseconds": 1.0}
    path.write_text(json.dumps({**found, "points": [point] * CURVE_POINTS}))
    assert _read(path, "x") is not None
    point |= {name: value for name, value in change.items() if name in point}
    found |= {name: value for name, value in change.items() if name in found}
    path.write_text(json.dumps({**found, "points": [point] * CURVE_POINTS}))
    assert _read(path, "x") is None


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder that is a link"])
def test_the_copy_of_a_shipped_network_is_not_written_through_a_link(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    place, precious = tmp_path / "runs" / "m_cifarnet-cifar10-22", tmp_path / "precious"
    place.parent.mkdir()
    precious.mkdir()
    (precious / "file").write_text("precious")
    if kind == "a folder that is a link":
        place.symlink_to(precious)
    else:
        place.mkdir()
        if kind == "a link":
            (place / "config.toml").symlink_to(precious / "file")
        else:
            os.mkfifo(place / "config.toml")
    with within(100):
        code, _, error = run("report", "m_cifarnet-cifar10-22", "--no-time")
    assert code == 2
    assert "not an ordinary file" in error or "not a folder of this run" in error
    assert [path.name for path in precious.iterdir()] == ["file"]
    assert (precious / "file").read_text() == "precious"
