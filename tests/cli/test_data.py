from pathlib import Path

import pytest

import sanp
from tests.cli.conftest import Run
from tests.data.image_files import noise, save


def test_data_list_names_the_sets(run: Run) -> None:
    code, out, _ = run("data", "list")
    assert code == 0
    assert all(name in out for name in sanp.data.DATASETS)


def test_data_get_of_the_digits_says_where_they_are(run: Run) -> None:
    code, out, _ = run("data", "get", "digits")
    assert code == 0
    assert f"digits: {sanp.data.get('digits')}" in out.replace("\n", "")


def test_a_folder_is_checked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cat", "dog"):
        for number in range(5):
            save(tmp_path / "photos" / name / f"{number}.png", noise(number))
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("data", "check", "photos")
    assert code == 0 and "10 of 20x14" in out and "30% of their area is cut off" in out
    assert (tmp_path / "contact-sheet.png").exists()
    (tmp_path / "photos" / "cat" / "bad.png").write_bytes(b"nothing")
    code, out, err = run("data", "check", "photos", "--resize", "pad")
    assert code == 2 and "bad.png" in out and "1 files cannot be read" in err and "cut off" not in out
