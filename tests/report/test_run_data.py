import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sanp.core.errors import SanpError
from sanp.report.run_data import read_runs, short_names


def test_runs_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    assert short_names([tmp_path / "a" / "run", tmp_path / "b" / "other"]) == ["run", "other"]
    assert short_names([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == ["a/run", "b/run"]
    with pytest.raises(SanpError, match="twice"):
        short_names([tmp_path, tmp_path / "x" / ".."])


def _without(name: str) -> Callable[[dict[str, object]], object]:
    return lambda report: report.pop(name)


@pytest.mark.parametrize(
    "damage",
    [
        _without("accuracy"),
        _without("dense"),
        lambda report: report.update(layers=[]),
        lambda report: report.update(layers=[{}]),
        lambda report: report["layers"][0].update(channels=0),
        lambda report: report["layers"][0].update(dense_flops=float("inf")),
        lambda report: report.update(confusion=[[1e400]]),
        lambda report: report.update(flops=float("nan")),
        lambda report: report.update(accuracy=7),
        lambda report: report.update(per_sample="many"),
        lambda report: report.update(confusion=[[1], [2, 3]]),
    ],
)
def test_a_damaged_report_is_one_clear_error(folder: Path, damage: Callable[[dict[str, object]], object]) -> None:
    path = folder / "report.json"
    report = json.loads(path.read_text())
    damage(report)
    path.write_text(json.dumps(report))
    with pytest.raises(SanpError, match=r"report\.json is damaged"):
        read_runs([folder])
