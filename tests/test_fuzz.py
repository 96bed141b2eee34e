from pathlib import Path

import pytest

from tests.tools import fuzz, tiny_run


def test_500_damaged_files_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_run.install(monkeypatch)
    monkeypatch.setenv("SANP_TUNING", str(tmp_path))  # the cases set it; it is put back
    seen = fuzz.run_cases(range(500), tmp_path)
    assert sum(seen.values()) == 500
    kinds = "network form weights state config recipe plan metrics report results page cifar image folder".split()
    for kind in kinds:
        assert seen[f"{kind} refused"] >= 5, kind  # damage gets as far as each reader
        assert seen[f"{kind} read"] >= 1, kind
