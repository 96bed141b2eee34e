import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanp.cli.display import before_and_after
from sanp.experiments.run import Finished


@pytest.mark.parametrize("cost, told", [(0.63, True), (0.27, False), (None, False)])
def test_a_run_that_left_its_budget_to_the_thresholds_says_so(cost: float | None, told: bool, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"stage": "joint", "cost": cost}) + "\n")
    report = SimpleNamespace(accuracy=0.1, flops=1e6, kept=0.25)
    table = before_and_after(Finished(tmp_path, report, report), "25%")  # type: ignore[arg-type]
    assert ("training ended at 63% of the FLOPs" in str(table.caption)) == told
