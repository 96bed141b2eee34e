"""States of training for the fuzzer: with one budget, and with a range of budgets."""

import shutil
from pathlib import Path

import torch

import sanp
from sanp.experiments.metrics import ProgressLog
from sanp.experiments.state import Position, Saved
from sanp.training.stage import Stage
from sanp.training.task import Task
from sanp.training.three_stages import fit_stages
from tests.tools import mutate, tiny_run
from tests.tools.fuzz_target import Target


def states(folder: Path) -> list[Target]:
    """The state after a step of the joint stage."""
    return [_state(folder / "state", "60%", 1), _state(folder / "range", "80%..90%", 24)]


def _state(folder: Path, budget: str, steps: int) -> Target:
    stage = _stage(budget)
    log = ProgressLog(folder, {})
    running = stage.run()
    for _ in range(steps):
        log.step(next(running))
    Saved(folder / "now").write(stage, Position(0, log.state()))
    begun = Path(shutil.copytree(folder / "now", folder / "begun"))
    path = folder / "now" / "now.safetensors"

    def resume() -> object:
        Saved(begun).restore(stage)  # else a case would depend on those before it
        saved = Saved(folder / "now")
        ProgressLog(folder, saved.position().log)
        saved.restore(stage)
        return next(stage.run(), None)

    damage = [mutate.in_bytes, mutate.in_safetensors, mutate.in_safetensors]
    return Target("state", [path.read_bytes()], path, resume, damage)


def _stage(budget: str) -> Stage:
    """The joint stage of the tiny network, a few steps long."""
    dataset = tiny_run.squares()
    batches = sanp.data.Batches(dataset.train, 32, mean=dataset.mean, std=dataset.std, drop_last=True)
    gated = sanp.gate(tiny_run.Tiny(), torch.zeros(1, 3, 8, 8))
    config = sanp.FitConfig(warmup_epochs=0, joint_epochs=4, precision="fp32", distill=0.0)
    return next(fit_stages(gated, Task(loader=batches, budget=budget, config=config)))
