"""Builds the native parts beside the package; without a working compiler the package installs without them."""

import os
import platform
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/sanp/engine/native")
TRAINING = Path("src/sanp/training/winograd/native")
SOURCES = sorted(source for source in NATIVE.rglob("*.cpp") if not source.stem.startswith("kernels_"))
HEADERS = sorted(str(header) for folder in (NATIVE, TRAINING) for header in folder.rglob("*.hpp"))
FLAGS = [
    "-std=c++17",
    "-O3",
    "-g0",
    "-fPIC",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-Wno-psabi",
]
QUIRKS = [  # of GCC; what a compiler does not know is left out
    # it spills pointers into vector registers, and fetching them costs a fifth of a kernel's speed
    "-mtune-ctrl=^inter_unit_moves_from_vec,^inter_unit_moves_to_vec",
    # it calls memcpy for a row of sixteen pixels
    "-fno-tree-loop-distribute-patterns",
]
X86 = platform.machine().lower() in ("x86_64", "amd64")
KERNELS: dict[str, list[str]] = {"plain": []}
if X86:
    KERNELS["avx2"] = ["-mavx2", "-mfma"]
    KERNELS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"]
if X86 and os.environ.get("SANP_BUILD_WIDE"):  # sixteen lanes without AVX-512, for tests; -O1 compiles in seconds
    KERNELS["wide"] = ["-mavx2", "-mfma", "-O1"]
INT8 = {name: flags for name, flags in KERNELS.items() if name in ("plain", "avx2")}
if X86:
    INT8["vnni"] = [*KERNELS["avx512"], "-mavx512vnni"]
    INT8["vnni_vbmi"] = [*INT8["vnni"], "-mavx512vbmi", "-mavx512vbmi2"]

Unit = tuple[Path, list[str]]
"""a source file and the flags of its own"""


def units_of(ext: Extension) -> list[Unit]:
    """What to compile: the engine's kernels once for each instruction set, each of training's for its own."""
    if ext.name.endswith("_training"):
        wide = [*KERNELS["avx512"], "-Wno-ignored-attributes"]
        return [
            (TRAINING / "fp32.cpp", KERNELS["avx2"]),
            (TRAINING / "fp32_wide.cpp", wide),
            (TRAINING / "bf16.cpp", [*wide, "-mavx512bf16"]),
        ]
    units = [(source, list[str]()) for source in SOURCES]
    units += [(NATIVE / f"kernels_{name}.cpp", flags) for name, flags in KERNELS.items()]
    return units + [(NATIVE / "int8" / f"kernels_{name}.cpp", flags) for name, flags in INT8.items()]


class BuildNative(build_ext):
    """Compiles each source with its own flags into one shared library without a Python ABI."""

    def get_ext_filename(self, fullname: str) -> str:
        """Without the name of a Python: the library is called through ctypes."""
        return f"{fullname.replace('.', os.sep)}.so"

    def build_extension(self, ext: Extension) -> None:
        """Compile and link; a failure is told and leaves the portable path."""
        try:
            self._compile(ext)
        except Exception as error:
            sys.stderr.write(f"sanp: {ext.name} was not built ({error}); torch will do its work\n")

    def _compile(self, ext: Extension) -> None:
        defines: list[tuple[str, str | None]] = [(f"SANP_WITH_{name.upper()}", None) for name in KERNELS]
        extra = os.environ.get("SANP_CXXFLAGS", "").split()
        quirks = [flag for flag in QUIRKS if self._accepts(flag)]

        def compiled(unit: Unit) -> list[str]:
            source, flags = unit
            return list(
                self.compiler.compile(
                    [str(source)],
                    output_dir=self.build_temp,
                    macros=defines,
                    extra_postargs=[*FLAGS, *flags, *(quirks if flags else []), *extra],
                    depends=HEADERS,
                )
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [name for made in pool.map(compiled, units_of(ext)) for name in made]
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        for earlier in (Path("src") / ext.name.replace(".", "/")).parent.glob(f"{target.stem}.*.so"):
            earlier.unlink()  # built under the name of a Python: it would be found first
        self.compiler.link_shared_object(objects, str(target), extra_postargs=["-pthread", *extra], target_lang="c++")

    def _accepts(self, flag: str) -> bool:
        """Whether the compiler knows a flag, found out by compiling nothing."""
        with tempfile.TemporaryDirectory() as folder:
            empty = Path(folder) / "empty.cpp"
            empty.write_text("int nothing;\n")
            try:
                self.compiler.compile([str(empty)], output_dir=folder, extra_postargs=["-Werror", flag])
            except Exception:
                return False
        return True


class AnyPython(bdist_wheel):
    """A wheel for every Python 3: nothing in it is compiled against one."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, its binary interface, the machine."""
        return "py3", "none", super().get_tag()[2]


# Everything is named here so that a source distribution holds it.
EVERYTHING = sorted(str(source) for source in NATIVE.rglob("*.cpp"))

EXTENSIONS = [Extension("sanp.engine._native", EVERYTHING, depends=HEADERS, language="c++", optional=True)]
if X86:
    KERNELS_OF_TRAINING = sorted(str(source) for source in TRAINING.glob("*.cpp"))
    EXTENSIONS.append(
        Extension(
            "sanp.training.winograd._training", KERNELS_OF_TRAINING, depends=HEADERS, language="c++", optional=True
        )
    )

setup(
    ext_modules=EXTENSIONS,
    cmdclass={"build_ext": BuildNative, "bdist_wheel": AnyPython},
)
