"""A run folder or cache that was received: links, pipes and folders where files should be."""

import os
from pathlib import Path

import pytest

import sanp
from sanp.engine import tuning_cache
from sanp.engine.timing import Timing
from sanp.experiments.run import resumed
from sanp.report.run_data import read_runs
from tests.core.test_files import within


@pytest.mark.parametrize("name", ["state", "tensorboard", "metrics.jsonl", ".lock"])
def test_a_resumed_run_writes_nothing_outside_its_folder(finished: Path, name: str) -> None:
    outside = finished.parent / "outside"
    outside.mkdir()
    (outside / "metrics.jsonl").write_text("precious")
    (finished / "model.safetensors").unlink()
    (finished / ".lock").unlink()
    for path in (finished / "metrics.jsonl", *finished.glob("tensorboard/*")):
        path.unlink()
    if (finished / "tensorboard").exists():
        (finished / "tensorboard").rmdir()
    (finished / name).symlink_to(outside if "." not in name else outside / "metrics.jsonl")
    with pytest.raises(sanp.SanpError, match=r"link|ordinary file"):
        resumed(finished)
    assert [path.name for path in outside.iterdir()] == ["metrics.jsonl"]
    assert (outside / "metrics.jsonl").read_text() == "precious"


@pytest.mark.parametrize("name", ["report.json", "config.toml", "metrics.jsonl", "inputs.json", "study.safetensors"])
def test_a_pipe_in_a_run_folder_does_not_hang_a_report(finished: Path, name: str) -> None:
    (finished / name).unlink(missing_ok=True)
    os.mkfifo(finished / name)
    with within(20):
        try:
            read_runs([finished])
        except sanp.SanpError as error:
            assert name in str(error)


def test_a_tuning_file_that_is_a_pipe_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANP_TUNING", str(tmp_path))
    library = tmp_path / "library.so"
    library.write_bytes(b"")
    path = tuning_cache.cache_file(library)
    assert path is not None
    os.mkfifo(path)
    with within(5):
        assert tuning_cache.read_timings(library) == {}
        tuning_cache.add(library, {"a": Timing({0: 1.0, 1: 2.0}, 0.0, 2)})


def test_the_home_folder_in_sanp_tuning_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SANP_TUNING", "~/tuning")
    library = tmp_path / "library.so"
    library.write_bytes(b"")
    path = tuning_cache.cache_file(library)
    assert path is not None
    assert path.parent == tmp_path / "tuning"
