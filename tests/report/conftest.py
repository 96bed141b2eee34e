"""A finished run of a tiny network, made once; every test sees the backbone and the data that it was made with."""

import shutil
from pathlib import Path

import pytest
import torch

import sanp.experiments.run
from tests.tools import tiny_run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder that all tests copy."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        tiny_run.install(patch)
        sanp.experiments.run.train(tiny_run.recipe(), folder)
    return folder


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backbone and the data of the run."""
    tiny_run.install(monkeypatch)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A run folder that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "tiny"))
