import json
from pathlib import Path

import pytest

from sanp.core.errors import SanpError
from sanp.report.charts.training import stages
from sanp.report.epochs import read_epochs


def test_steps_are_counted_through_all_stages(tmp_path: Path) -> None:
    lines = [("pretrain", 10), ("pretrain", 20), ("joint", 10), ("joint", 20), ("joint", 5)]
    path = tmp_path / "metrics.jsonl"
    written = [{"stage": stage, "step": step, "cost": 0.5 if stage == "joint" else None} for stage, step in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in written))
    found = read_epochs(tmp_path)
    assert [epoch.step for epoch in found] == [10, 20, 30, 40, 45]
    assert found[0].kept is None and found[-1].kept == 0.5  # the file calls it cost
    assert stages(found) == [(0, 20, "pretrain"), (20, 45, "joint")]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"stage": "joint"}', '{"stage": "joint", "step": null}', '{"stage": "joint", "step": -1}']
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"stage": "a", "step": 1}}\n{line}\n')
    with pytest.raises(SanpError, match=r"line 2.*run it anew"):
        read_epochs(tmp_path)
