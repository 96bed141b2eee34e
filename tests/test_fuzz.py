from pathlib import Path

import pytest

from tests.tools import fuzz, tiny_run


def test_500_damaged_files_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_run.install(monkeypatch)
    seen = fuzz.run_cases(range(500), tmp_path)
    assert sum(seen.values()) == 500
    for kind in ("network", "form", "state", "config", "recipe", "metrics", "report", "cifar", "image", "page"):
        assert seen[f"{kind} refused"] >= 5, kind  # damage gets as far as each reader
        assert seen[f"{kind} read"] >= 1, kind
