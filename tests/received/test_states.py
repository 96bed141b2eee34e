"""A state of training that was received."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import sanp
from sanp.experiments.run import resumed, train
from sanp.experiments.state import _like, clear_state
from sanp.training.controller import BudgetController, ControllerConfig
from sanp.training.range_training import RangeTraining
from tests.tools import tiny_run


@pytest.mark.parametrize("steps", [-1e9, 1e30, float("nan")])
def test_a_state_whose_optimizer_has_done_an_impossible_number_of_steps_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: float
) -> None:
    tiny_run.install(monkeypatch)

    state = tiny_run.stopped_in_joint_stage(tmp_path / "run")
    with safe_open(state, framework="pt") as file:
        header = file.metadata()
    tensors = load_file(state)
    tensors["optimizer.1.0.step"] = torch.full_like(tensors["optimizer.1.0.step"], steps)
    save_file(tensors, state, header)
    with pytest.raises(sanp.SanpError, match=r"is damaged \(an optimizer has done"):
        resumed(tmp_path / "run")


def test_a_folder_called_state_that_is_not_a_runs_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_run.install(monkeypatch)
    state = tmp_path / "run" / "state"
    state.mkdir(parents=True)
    (state / "precious").write_text("precious")
    (state / "now.safetensors").write_text("left over")
    fit = {"pretrain_epochs": 1, "warmup_epochs": 0, "joint_epochs": 1, "precision": "fp32", "distill": 0.0}
    train(tiny_run.recipe(fit=fit), tmp_path / "run")
    assert [path.name for path in state.iterdir()] == ["precious"]


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    for name in ("now.safetensors", "end-0.safetensors", ".now.safetensors.0123abcd", ".end-12.safetensors.89ef0123"):
        (tmp_path / name).write_text("")
    clear_state(tmp_path)
    assert not tmp_path.exists()


def range_training() -> RangeTraining:
    """Training for a range of budgets that has begun."""
    gated = sanp.gate(tiny_run.Tiny(), torch.zeros(1, 3, 8, 8))
    return RangeTraining(gated, 0.4, 0.7, BudgetController(0.4, ControllerConfig()), 10)


@pytest.mark.parametrize("change", [{"share": 0.9}, {"share": -1.0}, {"share": 1e300}, {"threshold_0": 1.0}])
def test_a_state_of_a_range_of_budgets_that_no_training_has_is_refused(change: dict[str, float]) -> None:
    training = range_training()
    state = {**training.state(), **change}
    with pytest.raises(ValueError, match="a range of budgets has"):
        training.restore(state)


@pytest.mark.parametrize("value", [1e300, -1e300, 10**400, float("nan"), True, "1"])
def test_a_number_in_a_state_that_single_precision_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="threshold_0 is"):
        _like({"threshold_0": 0.5}, {"threshold_0": value})
