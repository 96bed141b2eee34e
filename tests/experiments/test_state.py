import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import sanp
from sanp.experiments.metrics import ProgressLog
from sanp.experiments.run import resumed, train
from sanp.experiments.state import Position, Saved
from sanp.training.optimizers import scheduled
from sanp.training.precision import Format
from sanp.training.stage import Outcome, Progress, Stage
from tests.tools import tiny_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tiny_run.install(monkeypatch)
    yield


def test_runs_of_three_methods_killed_20_times_end_with_the_same_bits() -> None:
    program = [sys.executable, "-m", "tests.tools.kill", "20"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    kills = int(done.stdout.split()[-2])
    assert kills >= 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_after_its_step_and_it_can_be_gone_on_with(tmp_path: Path, number: int) -> None:
    steps: list[str] = []

    def watch(progress: object) -> None:
        steps.append(progress.stage)  # type: ignore[attr-defined]
        if len(steps) == 13:
            os.kill(os.getpid(), number)

    assert threading.current_thread() is threading.main_thread()
    train(tiny_run.recipe(), tmp_path / "whole")
    with pytest.raises(sanp.SanpError, match="stopped: go on with sanp train --resume"):
        train(tiny_run.recipe(), tmp_path / "run", watch=watch)
    assert len(steps) == 13
    resumed(tmp_path / "run")
    for name in ("metrics.jsonl", "report.json"):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_a_folder_in_use_or_taken_or_without_a_run_is_refused(tmp_path: Path) -> None:
    from sanp.core.files import locked

    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(sanp.SanpError, match="in use by another run"):
        train(tiny_run.recipe(), tmp_path / "run")
    with pytest.raises(sanp.SanpError, match="holds a run already"):
        train(tiny_run.recipe(), tmp_path / "run")
    with pytest.raises(sanp.SanpError, match="not a run folder"):
        resumed(tmp_path / "nothing")


def test_damaged_state_or_that_of_another_version_is_an_error_that_says_so(tmp_path: Path) -> None:
    state = tiny_run.stopped_in_joint_stage(tmp_path / "run")
    with pytest.MonkeyPatch.context() as later:
        later.setattr("sanp.experiments.state.STATE_FORMAT", 2)
        with pytest.raises(sanp.SanpError, match="has format 1, this sanp reads 2: go on with the sanp that wrote it"):
            resumed(tmp_path / "run")
    state.write_bytes(state.read_bytes()[:200])
    with pytest.raises(sanp.SanpError, match=r"now\.safetensors is damaged"):
        resumed(tmp_path / "run")


def test_a_restored_stage_does_not_depend_on_its_file_any_more(tmp_path: Path) -> None:
    def made(weight: float) -> Stage:
        net = torch.nn.Linear(2, 1)
        torch.nn.init.constant_(net.weight, weight)
        batches = [(torch.ones(1, 2), torch.ones(1, 1))] * 3
        adam = scheduled(torch.optim.Adam(net.parameters(), lr=0.1), lambda progress, epoch: 1.0)
        form = Format(net, "fp32")
        return Stage("s", net, batches, 1, lambda x, y, _: Outcome((net(x) - y).square().sum()), [adam], form)

    stage = made(1.0)
    next(stage.run())
    Saved(tmp_path).write(stage, Position(0, {}))
    again = made(2.0)
    Saved(tmp_path).restore(again)
    file = tmp_path / "now.safetensors"
    with file.open("r+b") as content:  # in place: a file that is replaced would leave the old one to its readers
        content.write(b"\xff" * file.stat().st_size)
    assert [float(each["step"]) for each in again.optimizers[0].optimizer.state.values()] == [1.0, 1.0]
    assert torch.equal(again.net.state_dict()["weight"], stage.net.state_dict()["weight"])


def test_a_loss_that_is_not_finite_names_the_layer_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    """The scales of a batch norm are made to overflow in the second epoch of the joint stage."""

    def overflow(progress: Progress) -> None:
        if progress.stage == "joint" and progress.step == 10:
            with torch.no_grad():
                running[-1].layers["features.3"].norm.weight.fill_(3e38)  # type: ignore[union-attr, operator]

    running: list[sanp.GatedNetwork] = []
    whole = sanp.training.three_stages.joint_stage

    def watched(gated: sanp.GatedNetwork, task: object, budget: object) -> object:
        running.append(gated)
        return whole(gated, task, budget)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sanp.training.three_stages, "joint_stage", watched)
        with pytest.raises(sanp.SanpError) as caught:
            train(tiny_run.recipe(), tmp_path / "run", watch=overflow)
    said = str(caught.value)
    assert (
        "at step 11 of stage joint" in said
        and "layer net.features.3.norm (BatchNorm2d)" in said
        and "lower the learning rate" in said
    )
    state = tmp_path / "run" / "state" / "now.safetensors"
    assert str(state) in said
    assert all(bool(torch.isfinite(tensor.float()).all()) for tensor in load_file(state).values())
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("\nlr = 0.05", "\nlr = 0.01"))
    steps: list[Progress] = []
    resumed(tmp_path / "run", watch=steps.append)
    assert (steps[0].stage, steps[0].step) == ("joint", 9)  # eight steps are an epoch
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_a_full_disk_is_a_clear_error_and_the_earlier_checkpoint_is_intact(tmp_path: Path) -> None:
    """Files may grow to 2 kB from a point on: as on a full disk, the next write fails in its middle."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept: list[bytes] = []

    def fill(progress: Progress) -> None:
        if progress.stage == "joint" and progress.step == 10:
            kept.append((tmp_path / "run" / "state" / "now.safetensors").read_bytes())
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))

    train(tiny_run.recipe(), tmp_path / "whole")
    try:
        with pytest.raises(sanp.SanpError, match=r"cannot write .*: make room or choose another folder"):
            train(tiny_run.recipe(), tmp_path / "run", watch=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [path.name for path in (tmp_path / "run" / "state").glob("*now*")] == ["now.safetensors"]
    assert (tmp_path / "run" / "state" / "now.safetensors").read_bytes() == kept[0]
    resumed(tmp_path / "run")
    for name in ("metrics.jsonl", "report.json"):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_a_folder_that_becomes_read_only_is_a_clear_error(tmp_path: Path) -> None:
    """Where the state lay there is a file: nothing can be written there, whoever runs the test."""

    def close(progress: Progress) -> None:
        if progress.stage == "warm-up" and progress.step == 1:
            (tmp_path / "run" / "state").rename(tmp_path / "run" / "moved")
            (tmp_path / "run" / "state").touch()

    with pytest.raises(sanp.SanpError, match="choose a folder that can be written"):
        train(tiny_run.recipe(), tmp_path / "run", watch=close)
    (tmp_path / "run" / "state").unlink()
    (tmp_path / "run" / "moved").rename(tmp_path / "run" / "state")
    resumed(tmp_path / "run")
    with pytest.raises(sanp.SanpError, match="choose a folder that can be written"):
        train(tiny_run.recipe(), Path("/proc/none/run"))


def test_a_kill_while_the_log_is_opened_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("first\nsecond\nof an epoch that is run again\n")

    def killed(path: Path, text: str, encoding: str) -> None:
        path.open("w").close()  # emptied, and then no more
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            ProgressLog(tmp_path, {"lines": 2}).open()
    with ProgressLog(tmp_path, {"lines": 2}) as log:
        log.open()
    assert metrics.read_text() == "first\nsecond\n"
