"""Choices of algorithms are kept on disk, and a damaged file costs only time."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from sanp.engine import compile, tune, tuning_cache
from sanp.engine.library import NativeProgram, Unavailable, library_path, load
from sanp.engine.names import ALGORITHMS

try:
    load()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


def teams(monkeypatch: pytest.MonkeyPatch, batch: int = 1, threads: int = 1) -> list[int]:
    """How many threads are timed together, each time that compiling a small network measures."""
    calls: list[int] = []
    original = tune._measure
    monkeypatch.setattr(tune, "_measure", lambda *args: calls.append(args[-1]) or original(*args))
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
    compile(net, torch.zeros(batch, 3, 16, 16), threads=threads)
    monkeypatch.setattr(tune, "_measure", original)
    return calls


def measured(monkeypatch: pytest.MonkeyPatch) -> int:
    """How often compiling a small network measures."""
    return len(teams(monkeypatch))


def test_a_second_compilation_measures_nothing(tuning: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [measured(monkeypatch), measured(monkeypatch)] == [1, 0]
    (file,) = tuning.glob("*.json")
    content = json.loads(file.read_text())
    assert content["processor"] == tuning_cache.processor()
    assert list(content["choices"].values()) == [next(iter(content["choices"].values()))]


@pytest.mark.parametrize("batch, threads, timed", [(1, 1, [1]), (1, 2, [1, 2]), (2, 2, [1]), (2, 1, [1])])
def test_threads_that_share_an_image_are_timed_together_too(
    tuning: Path, monkeypatch: pytest.MonkeyPatch, batch: int, threads: int, timed: list[int]
) -> None:
    assert teams(monkeypatch, batch, threads) == timed


@pytest.mark.parametrize("together, expected", [(0.9, "direct"), (0.7, "winograd 4x4")])
def test_the_times_of_a_team_and_of_one_thread_decide_together(
    tuning: Path, monkeypatch: pytest.MonkeyPatch, together: float, expected: str
) -> None:
    def seconds(program: NativeProgram, choices: object, inputs: object, team: int) -> NDArray[np.float64]:
        table = np.full((len(ALGORITHMS), program.operators), 9.0)
        table[ALGORITHMS.index("direct")] = 1
        table[ALGORITHMS.index("winograd 4x4")] = 2 if team == 1 else together
        return table

    monkeypatch.setattr(tune, "_measure", seconds)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
    fast = compile(net, torch.zeros(1, 3, 16, 16), threads=2)
    assert expected in str(fast.plan)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"choices": 3}', '{"choices": {"a": "b"}}', "\x00\xff"])
def test_a_damaged_file_is_measured_anew(tuning: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    measured(monkeypatch)
    (file,) = tuning.glob("*.json")
    file.write_text(damage)
    assert [measured(monkeypatch), measured(monkeypatch)] == [1, 0]


def test_a_choice_that_the_convolution_does_not_have_is_measured_anew(
    tuning: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch)
    (file,) = tuning.glob("*.json")
    content = json.loads(file.read_text())
    file.write_text(json.dumps({"choices": dict.fromkeys(content["choices"], 3)}))  # 3 is for stride 2
    assert measured(monkeypatch) == 1


def test_a_folder_that_cannot_be_made_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SANP_TUNING", str(tmp_path / "file" / "below"))
    assert [measured(monkeypatch), measured(monkeypatch)] == [1, 1]


def test_writers_at_the_same_time_leave_a_whole_file(tuning: Path) -> None:
    def write(first: int) -> None:
        for number in range(20):
            tuning_cache.add(library_path(), {f"{first}-{number}": first})

    writers = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = tuning_cache.read(library_path())
    assert found
    assert all(key.startswith(f"{choice}-") for key, choice in found.items())
    assert [path.suffix for path in tuning.iterdir()] == [".json"]
