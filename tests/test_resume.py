import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import sanp
from sanp.run import resumed, train
from tests import tiny_run

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sanp.run.build", None)  # put back afterwards
    monkeypatch.setattr("sanp.run.load_data", None)
    monkeypatch.setitem(sanp.backbones.BACKBONES, "tiny", tiny_run.Tiny)
    tiny_run.install()
    yield


def test_a_run_killed_at_20_points_ends_with_the_same_bits(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.killed_runs", str(tmp_path), "20"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
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
    from sanp.lock import locked

    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(sanp.SanpError, match="in use by another run"):
        train(tiny_run.recipe(), tmp_path / "run")
    with pytest.raises(sanp.SanpError, match="holds a run already"):
        train(tiny_run.recipe(), tmp_path / "run")
    with pytest.raises(sanp.SanpError, match="not a run folder"):
        resumed(tmp_path / "nothing")


def test_damaged_state_is_an_error_that_says_so(tmp_path: Path) -> None:
    def stop(progress: object) -> None:
        if progress.stage == "joint":  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(sanp.SanpError, match="stopped"):
        train(tiny_run.recipe(), tmp_path / "run", watch=stop)
    state = tmp_path / "run" / "state" / "now.safetensors"
    state.write_bytes(state.read_bytes()[:200])
    with pytest.raises(sanp.SanpError, match=r"now\.safetensors is damaged"):
        resumed(tmp_path / "run")
