"""``python -m tests.tools.wheel dist/*.whl``: a wheel in an empty environment without a compiler computes natively.

Makes an environment, installs the wheel into it with nothing but that environment on the path, and runs there what a
new user runs first: a shipped network, compiled. The engine must be native, and give what torch gives. Ends with an
error otherwise.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST = """
import shutil
import torch
import sanp

assert not any(shutil.which(name) for name in ("cc", "c++", "gcc", "g++", "clang"))
assert "site-packages" in sanp.__file__
network = sanp.pretrained("m_cifarnet-cifar10-22").eval()
x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
fast = sanp.compile(network, x[:1])
assert fast.plan.native, fast.plan
with torch.no_grad():
    y = network(x)
difference = float((fast(x) - y).abs().max() / y.abs().max())
assert difference < 1e-4, difference
from sanp.training.winograd.library import usable
print(f"sanp {sanp.__version__}, torch {torch.__version__}, {fast.plan.instruction_set} kernels")
print(f"largest difference to torch: {difference:.1e}; training's library is usable: {usable()}")
"""


def check(wheel: Path) -> None:
    """Installs the wheel into a new environment and runs the first lines of a new user there."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        alone = {**os.environ, "PATH": f"{folder}/bin", "PYTHONPATH": "", "SANP_NATIVE": "", "SANP_TUNING": "off"}
        python = f"{folder}/bin/python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True, env=alone)
        subprocess.run([python, "-W", "error", "-c", FIRST], check=True, env=alone, cwd=folder)
        subprocess.run([f"{folder}/bin/sanp", "--help"], check=True, env=alone, cwd=folder, stdout=subprocess.DEVNULL)
    sys.stdout.write(f"{wheel.name} works where nothing else is installed\n")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        check(Path(given).resolve())
