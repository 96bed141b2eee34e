"""The folder of a short run, to be damaged, and the command line to read it with."""

import shutil
from pathlib import Path

import pytest

from sanp.experiments.run import train
from tests.cli.conftest import run
from tests.tools import tiny_run

__all__ = ["run"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run, which no test may change."""
    with pytest.MonkeyPatch.context() as patch:
        tiny_run.install(patch)
        fit = {"pretrain_epochs": 1, "warmup_epochs": 0, "joint_epochs": 1, "precision": "fp32", "norm_batches": 1}
        return train(tiny_run.recipe(fit={**fit, "distill": 0.0}), tmp_path_factory.mktemp("trained") / "run").folder


@pytest.fixture
def finished(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder of a short run."""
    tiny_run.install(monkeypatch)
    return Path(shutil.copytree(trained, tmp_path / "run"))
