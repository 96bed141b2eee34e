"""Paths that no file system has, home folders of nobody, and a library that was cut short."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

import sanp
from sanp.engine import tuning_cache
from sanp.engine.timing import Timing
from tests.cli.conftest import Run
from tests.core.test_files import within
from tests.tools import tiny_run


@pytest.mark.parametrize("path", ["x" * 5000, "x" * 300, "x\0y", "/".join(["y" * 200] * 30)], ids=range(4))
def test_a_path_that_no_file_system_has_is_refused(path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: sanp.load(path, tiny_run.Tiny()),
        lambda: sanp.save(tiny_run.Tiny(), path),
        lambda: sanp.data.load(f"imagefolder:{path}"),
        lambda: sanp.data.get(f"imagefolder:{path}"),
        lambda: sanp.data.describe(Path(path)),
    ]
    for call in calls:
        with pytest.raises(sanp.SanpError, match="the path"):
            call()


def test_the_home_folder_of_nobody_is_refused() -> None:
    with pytest.raises(sanp.SanpError, match="not known here: give the whole path"):
        sanp.data.load("imagefolder:~nosuchuser/x")


def test_half_a_library_does_not_end_the_process(tmp_path: Path) -> None:
    found = list(Path(sanp.engine.__file__).parent.glob("_native*.so"))
    if not found:
        pytest.skip("no native library")
    whole = found[0].read_bytes()
    (tmp_path / "half.so").write_bytes(whole[: len(whole) // 2])
    program = (
        "from sanp.engine import library\ntry:\n library.native_library()\nexcept library.Unavailable as e:\n print(e)"
    )
    environment = {**os.environ, "SANP_NATIVE": str(tmp_path / "half.so")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "half.so cannot be loaded" in done.stdout


def images(folder: Path) -> Path:
    """A folder of two classes of pictures."""
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (9, 9)).save(folder / name / f"{number}.png")
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--sheet", "x.foo"), "ends in .png"), (("--sheet", "x"), "ends in .png"),
     (("--image-size", "0"), "from 8 to 4096"),
     (("--image-size", "-5"), "from 8 to 4096"), (("--image-size", "1000000000"), "from 8 to 4096"),
     (("--resize", "x"), "unknown resize 'x'")],
)  # fmt: skip
def test_data_check_refuses_what_it_cannot_do_before_any_work(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = run("data", "check", str(images(tmp_path / "images")), *arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(error.split())


def test_a_contact_sheet_is_not_written_through_a_link(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("precious").write_text("precious")
    Path("sheet.png").symlink_to("precious")
    code, _, error = run("data", "check", str(images(tmp_path / "images")), "--sheet", "sheet.png")
    assert code == 2 and "is a link" in error
    assert Path("precious").read_text() == "precious"


def test_an_input_that_fills_the_memory_is_refused_at_once(run: Run) -> None:
    with within(20):
        code, _, error = run("inspect", "m_cifarnet", "--input", "30000,3,224,224")
    assert code == 2 and "has more than 268435456 numbers" in " ".join(error.split())


def test_without_a_home_folder_nothing_is_made_in_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pooch.os_cache", lambda name: Path("~") / ".cache" / name)
    monkeypatch.delenv("SANP_DATA", raising=False)
    monkeypatch.delenv("SANP_TUNING", raising=False)
    assert tuning_cache.cache_file(Path("library.so")) is None
    with pytest.raises(sanp.SanpError, match="no home folder here: name a folder for data by SANP_DATA"):
        sanp.data.describe()


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickle.dumps])
def test_a_compiled_network_is_not_copied_or_pickled(copied: Callable[[object], object]) -> None:
    fast = sanp.compile(tiny_run.Tiny().eval(), torch.zeros(1, 3, 8, 8), tune=False)
    with pytest.raises(sanp.SanpError, match="compile it where it runs"):
        copied(fast)


def test_a_number_of_rounds_that_no_tuning_makes_is_not_kept() -> None:
    sound = {"least": {"0": 1.0, "1": 2.0}, "noise": 0.0, "rounds": 4}
    assert Timing.from_json(sound) is not None
    assert Timing.from_json({**sound, "rounds": 10**4299}) is None
