import shutil
import subprocess
from pathlib import Path

import pytest

import sanp.engine

LIBRARIES = list(Path(sanp.engine.__file__).parent.glob("_native*.so"))


@pytest.mark.skipif(not LIBRARIES or shutil.which("nm") is None, reason="no native library, or no nm to look into it")
def test_no_kernel_file_runs_code_when_the_library_is_loaded() -> None:
    """A table filled at load time by code for AVX-512 ends the process on a processor without it."""
    names = subprocess.run(["nm", "-C", str(LIBRARIES[0])], capture_output=True, text=True, check=True).stdout
    assert "sanp_" in names
    assert [line for line in names.splitlines() if "_GLOBAL__sub_I_kernels" in line] == []
