"""``python -m tests.tools.engine_sanitize 2000``: random cases under the address and undefined-behaviour sanitizers.

Builds the library anew with g++ into a temporary folder, for every instruction set that this machine can run.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "src" / "sanp" / "engine" / "native"
FLAGS = "-std=c++17 -O1 -g1 -fPIC -fsanitize=address,undefined -fno-sanitize-recover=undefined -Wno-psabi".split()
KERNELS = {"plain": [], "avx2": ["-mavx2", "-mfma"], "wide": ["-mavx2", "-mfma"]}  # wide: sixteen lanes of AVX2
if "avx512dq" in Path("/proc/cpuinfo").read_text():
    KERNELS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"]
INT8 = {"plain": [], "avx2": KERNELS["avx2"]}
if "avx512" in KERNELS:  # needs only a compiler that knows VNNI; a processor without it runs the kernels of AVX2
    INT8["vnni"] = [*KERNELS["avx512"], "-mavx512vnni"]
    INT8["vnni_vbmi"] = [*INT8["vnni"], "-mavx512vbmi", "-mavx512vbmi2"]


def build(folder: Path) -> Path:
    """The instrumented library."""
    defines = [f"-DSANP_WITH_{name.upper()}" for name in KERNELS]
    (folder / "int8").mkdir()
    sources = [source.relative_to(NATIVE) for source in NATIVE.rglob("*.cpp")]
    units = [(str(source.with_suffix("")), []) for source in sources if not source.stem.startswith("kernels_")]
    units += [(f"kernels_{name}", flags) for name, flags in KERNELS.items()]
    units += [(f"int8/kernels_{name}", flags) for name, flags in INT8.items()]
    jobs = [
        subprocess.Popen(
            ["g++", *FLAGS, *flags, *defines, "-c", str(NATIVE / f"{unit}.cpp"), "-o", f"{folder}/{unit}.o"]
        )
        for unit, flags in units
    ]
    if any(job.wait() for job in jobs):
        raise SystemExit("the instrumented library does not compile")
    library = folder / "libsanp_sanitized.so"
    objects = [str(folder / f"{unit}.o") for unit, _ in units]
    subprocess.run(["g++", "-shared", *FLAGS, *objects, "-o", str(library), "-pthread"], check=True)
    return library


def library_of_compiler(name: str) -> str:
    """Where the compiler has this library."""
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def main(count: str = "2000") -> None:
    """Runs the cases with each instruction set; a finding ends the process with its report."""
    preloaded = [library_of_compiler(name) for name in ("libasan.so", "libstdc++.so.6")]  # the second: torch throws
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        for name in KERNELS:
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
            options = {
                "LD_PRELOAD": " ".join(preloaded),
                "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself never frees all
                "UBSAN_OPTIONS": "print_stacktrace=1",
                "SANP_NATIVE": str(library),
                "SANP_ISA": name,
            }
            command = [sys.executable, "-m", "tests.tools.engine_soak", count]
            subprocess.run(command, cwd=ROOT, env={**os.environ, **options}, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
