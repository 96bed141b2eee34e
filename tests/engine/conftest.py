"""Tests keep what they tune to themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sanp.engine.compiling import _warn_once
from sanp.engine.library import native_library


@pytest.fixture(autouse=True, scope="session")
def _tuning_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    import os

    os.environ["SANP_TUNING"] = str(tmp_path_factory.mktemp("tuning"))


@pytest.fixture
def tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for what is tuned."""
    monkeypatch.setenv("SANP_TUNING", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The native library is switched off, and nobody has been warned of that."""
    monkeypatch.setenv("SANP_NATIVE", "off")
    native_library.cache_clear()
    _warn_once.cache_clear()
    yield
    native_library.cache_clear()
