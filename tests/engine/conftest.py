"""Tests keep what they tune to themselves."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def _tuning_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    import os

    os.environ["SANP_TUNING"] = str(tmp_path_factory.mktemp("tuning"))


@pytest.fixture
def tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for what is tuned."""
    monkeypatch.setenv("SANP_TUNING", str(tmp_path))
    return tmp_path
