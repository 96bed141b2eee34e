"""What a library that is not this package's own would do, and when it is refused."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import sanp.engine
from sanp.engine import library
from sanp.engine.names import ACTIVATIONS, ALGORITHMS, OperatorKind

LIBRARIES = list(Path(sanp.engine.__file__).parent.glob("_native*.so"))
NATIVE = pytest.mark.skipif(not LIBRARIES, reason="no native library")


@pytest.fixture
def unloaded() -> Iterator[None]:
    """The library is loaded anew inside the test, and again after it."""
    library.native_library.cache_clear()
    yield
    library.native_library.cache_clear()


@pytest.mark.skipif(not LIBRARIES or shutil.which("nm") is None, reason="no native library, or no nm to look into it")
def test_no_kernel_file_runs_code_when_the_library_is_loaded() -> None:
    """A table filled at load time by code for AVX-512 ends the process on a processor without it."""
    names = subprocess.run(["nm", "-C", str(LIBRARIES[0])], capture_output=True, text=True, check=True).stdout
    assert "sanp_" in names
    assert [line for line in names.splitlines() if "_GLOBAL__sub_I_kernels" in line] == []


@NATIVE
def test_the_library_has_the_same_number_for_every_name() -> None:
    loaded = library.native_library()
    assert loaded.sanp_operator_name(OperatorKind.CONV) == b"conv"
    assert [loaded.sanp_operator_name(number) for number in (0, len(OperatorKind) + 1, -1)] == [None] * 3
    assert [loaded.sanp_activation_name(number) for number in (0, 13, 14)] == [b"none", b"mish", None]
    assert [loaded.sanp_algorithm_name(number) for number in (0, 4, 5, 6)] == [
        b"direct",
        b"winograd by lanes",
        b"winograd 7x7 stride 2",
        None,
    ]


@NATIVE
@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("ACTIVATIONS", (ACTIVATIONS[1], ACTIVATIONS[0], *ACTIVATIONS[2:])),
        ("ACTIVATIONS", ACTIVATIONS[:-1]),
        ("ALGORITHMS", (*ALGORITHMS, "by hand")),
        ("OperatorKind", tuple(OperatorKind)[1:]),
    ],
)
def test_a_library_with_other_numbers_is_refused(
    unloaded: None, monkeypatch: pytest.MonkeyPatch, table: str, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(library, table, names)
    with pytest.raises(library.Unavailable, match="has other numbers for its operators: install the package again"):
        library.native_library()
