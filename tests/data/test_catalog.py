import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sanp.core.errors import SanpError
from sanp.data import DATASETS, Dataset, data_folder, describe, get, load
from sanp.data.cifar import CIFAR10
from tests.data.conftest import MakeCifar

HEAVY = {"PIL", "pooch", "sklearn", "scipy", "requests", "matplotlib", "onnx"}


def test_importing_the_data_room_loads_nothing_heavy() -> None:
    code = "import sys, sanp.data; print(*{name.split('.')[0] for name in sys.modules})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(out.split())


def test_a_limit_keeps_that_many_training_images_and_the_whole_test_set() -> None:
    short = load("digits", limit=100)
    assert (len(short.train), len(short.test)) == (100, 360)
    assert torch.equal(short.train.labels, load("digits", limit=100).train.labels)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("cifar", "did you mean cifar10"),
        ("nonsense", "choose one of cifar10, cifar100, digits, imagefolder:PATH"),
        ("", "unknown data set"),
        (None, "unknown data set"),
        ("imagefolder:", "names no folder"),
        ("imagefolder:/no/such/folder", "is not a folder"),
    ],
)
def test_an_unknown_data_set_is_refused_with_the_nearest_names(spec: str, says: str) -> None:
    for ask in (load, get):
        with pytest.raises(SanpError, match=says):
            ask(spec)


@pytest.mark.parametrize("size", [0, 7, 5000, 32.0, True])
def test_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(SanpError, match="size is"):
        load("digits", size=size)


def test_the_list_says_what_is_here(tmp_path: Path, make_cifar: MakeCifar) -> None:
    folder = make_cifar(tmp_path, CIFAR10)
    digits, cifar10, cifar100 = describe(tmp_path)
    assert [entry.name for entry in (digits, cifar10, cifar100)] == list(DATASETS)
    assert digits.here
    assert cifar10.path == folder
    assert cifar10.bytes == sum(file.stat().st_size for file in folder.iterdir())
    assert not cifar100.here
    assert (cifar100.images, cifar100.classes, cifar100.bytes) == (60_000, 100, 169_001_437)
    assert get("cifar10", tmp_path) == folder
    assert get("digits").is_file()
    assert get(f"imagefolder:{tmp_path}") == tmp_path


def test_a_data_set_of_one_s_own_is_fetched_by_its_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(root: Path, **_: object) -> Dataset:
        (root / "mine.bin").touch()
        return load("digits", limit=20)

    monkeypatch.setitem(DATASETS, "mine", mine)
    assert get("mine", tmp_path) == tmp_path
    assert (tmp_path / "mine.bin").is_file()


def test_the_data_folder_is_the_given_one_else_the_environments_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANP_DATA", str(tmp_path / "named"))
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == tmp_path / "named"
    monkeypatch.delenv("SANP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder().name == "sanp"
