"""The explorer of a tiny run."""

from pathlib import Path

import pytest

from sanp.report.explorer.explorer import Explorer


@pytest.fixture
def explorer(folder: Path) -> Explorer:
    return Explorer(folder)
