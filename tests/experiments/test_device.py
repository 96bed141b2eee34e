"""Runs on another device, from the first stage to the files: every method, with a stand-in that needs no hardware."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sanp.experiments.run import train
from sanp.experiments.run_folder import read_report
from sanp.methods import METHODS
from sanp.report.study import make_study
from tests.tools import other_device, tiny_run

SHORT = {"pretrain_epochs": 1, "warmup_epochs": 1, "joint_epochs": 1, "precision": "fp32", "norm_batches": 1}


@pytest.mark.filterwarnings("ignore::sanp.core.errors.BudgetWarning")  # of eight channels a layer
@pytest.mark.filterwarnings("ignore:for .*num_batches_tracked")  # torch makes one itself for a norm on meta
@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_on_another_device(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_run.install(monkeypatch)
    budget = 1.0 if method.startswith("dense") else 0.6
    with other_device.installed(monkeypatch):
        train(tiny_run.recipe(method=method, device="mps", budget=f"{budget:.0%}", fit=SHORT), tmp_path / "run")
        studied = make_study(tmp_path / "run", tiny_run.squares(), torch.device(other_device.NAME))
    assert np.array_equal(studied.flops, read_report(tmp_path / "run")["per_sample"])
    assert read_report(tmp_path / "run")["kept"] == pytest.approx(budget, abs=0.12)
