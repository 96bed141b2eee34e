"""Native libraries that were cut short."""

from pathlib import Path

import pytest

import sanp.engine
from sanp.core.native import load_library

LIBRARIES = list(Path(sanp.engine.__file__).parent.glob("_native*.so"))


@pytest.mark.skipif(not LIBRARIES, reason="no native library")
@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9])
def test_part_of_a_library_is_refused(tmp_path: Path, share: float) -> None:
    """Loaded as it is, half a library ends the process with SIGBUS."""
    whole = LIBRARIES[0].read_bytes()
    part = tmp_path / "part.so"
    part.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(OSError, match=r"cut short|too short|file"):
        load_library(part)


@pytest.mark.skipif(not LIBRARIES, reason="no native library")
def test_a_whole_library_is_loaded() -> None:
    assert load_library(LIBRARIES[0]).sanp_interface() > 0


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    for path in (tmp_path / "text.so", tmp_path, tmp_path / "nothing.so"):
        with pytest.raises(OSError):
            load_library(path)
