from pathlib import Path

import numpy as np
import pytest

from sanp.core.errors import SanpError
from sanp.report.study_file import STUDY_FILE, study_of


def test_a_second_study_needs_no_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = study_of(folder)

    def gone(*_: object) -> None:
        raise SanpError("no data here")

    monkeypatch.setattr("sanp.experiments.run_folder.load_data", gone)
    second = study_of(folder)
    assert second.classes == first.classes and np.array_equal(second.flops, first.flops)
    assert {name: shares.tolist() for name, shares in second.open.items()} == {
        name: shares.tolist() for name, shares in first.open.items()
    }


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_damaged_study_is_made_again(folder: Path, content: bytes) -> None:
    first = study_of(folder)
    (folder / STUDY_FILE).write_bytes(content)
    assert np.array_equal(study_of(folder).flops, first.flops)


def test_the_study_of_another_network_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study_of(folder)
    dense = (folder / "dense.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(dense)
    found = study_of(folder)
    assert not found.varies and found.open == {}


def test_an_unfinished_run_says_how_to_go_on(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(SanpError, match=r"not finished.*--resume"):
        study_of(folder)
