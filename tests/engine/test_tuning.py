"""Choices of algorithms are kept on disk, and a damaged file costs only time."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from sanp.engine import compile, tune, tuning_cache
from sanp.engine.library import Unavailable, library_path, native_library
from sanp.engine.names import ALGORITHMS
from sanp.engine.native_program import NativeProgram
from sanp.engine.timing import Timing

try:
    native_library()
except Unavailable as reason:
    pytest.skip(f"no native library: {reason}", allow_module_level=True)


def teams(monkeypatch: pytest.MonkeyPatch, batch: int = 1, threads: int = 1) -> list[int]:
    """How many threads are timed together, each time that compiling a small network measures."""
    calls: list[int] = []
    original = tune._measure

    def quiet(program: NativeProgram, choices: tune.Choices, inputs: Any, team: int, *more: Any) -> NDArray[np.float64]:
        """The true times, each twice: a machine so quiet that nothing is left to doubt."""
        calls.append(team)
        return original(program, choices, inputs, team, *more).min(0)[None].repeat(2, 0)

    monkeypatch.setattr(tune, "_measure", quiet)
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
    (timing,) = content["timings"].values()
    assert set(timing) == {"least", "noise", "rounds"}
    assert timing["noise"] == 0


@pytest.mark.parametrize("batch, threads, timed", [(1, 1, [1]), (1, 2, [1, 2]), (2, 2, [1]), (2, 1, [1])])
def test_threads_that_share_an_image_are_timed_together_too(
    tuning: Path, monkeypatch: pytest.MonkeyPatch, batch: int, threads: int, timed: list[int]
) -> None:
    assert teams(monkeypatch, batch, threads) == timed


@pytest.mark.parametrize("together, expected", [(0.9, "direct"), (0.7, "winograd 4x4")])
def test_the_times_of_a_team_and_of_one_thread_decide_together(
    tuning: Path, monkeypatch: pytest.MonkeyPatch, together: float, expected: str
) -> None:
    def seconds(program: NativeProgram, choices: Any, inputs: Any, team: int, *more: Any) -> NDArray[np.float64]:
        table = np.full((2, len(ALGORITHMS), program.operators), 9.0)
        table[:, ALGORITHMS.index("direct")] = 1
        table[:, ALGORITHMS.index("winograd 4x4")] = 2 if team == 1 else together
        return table

    monkeypatch.setattr(tune, "_measure", seconds)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
    fast = compile(net, torch.zeros(1, 3, 16, 16), threads=2)
    assert expected in str(fast.plan)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"timings": 3}', '{"timings": {"a": "b"}}', "\x00\xff"])
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
    other = {"least": {"0": 2.0, "3": 1.0}, "noise": 0.0, "rounds": 2}  # 3 is for stride 2
    file.write_text(json.dumps({"timings": dict.fromkeys(content["timings"], other)}))
    assert measured(monkeypatch) == 1


def test_a_folder_that_cannot_be_made_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SANP_TUNING", str(tmp_path / "file" / "below"))
    assert [measured(monkeypatch), measured(monkeypatch)] == [1, 1]


def test_writers_at_the_same_time_leave_a_whole_file(tuning: Path) -> None:
    def write(first: int) -> None:
        for number in range(20):
            tuning_cache.add(library_path(), {f"{first}-{number}": Timing({0: 1.0, 1: float(first)}, 0.0, 2)})

    writers = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = tuning_cache.read_timings(library_path())
    assert found
    assert all(key.startswith(f"{timing.least[1]:.0f}-") for key, timing in found.items())
    assert [path.suffix for path in tuning.iterdir()] == [".json"]


def test_a_choice_that_was_not_sure_is_measured_again_until_it_is(
    tuning: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaken = [1.2, 1.0]  # of one algorithm, round by round: its noise is a fifth
    scores = iter([(shaken, [1.1, 1.1]), (shaken, [1.1, 1.1]), ([0.9, 0.9], [1.1, 1.1])])
    calls = 0

    def seconds(program: NativeProgram, choices: Any, *more: Any) -> NDArray[np.float64]:
        nonlocal calls
        calls += 1
        table = np.full((2, len(ALGORITHMS), program.operators), 9.0)
        table[:, ALGORITHMS.index("direct")], table[:, ALGORITHMS.index("winograd 4x4")] = (
            np.array(each)[:, None] for each in next(scores)
        )
        return table

    monkeypatch.setattr(tune, "_measure", seconds)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
    for expected in (1, 2, 3, 3):  # the third measurement is quiet, and the fourth compilation makes none
        compile(net, torch.zeros(1, 3, 16, 16))
        assert calls == expected
    (timing,) = tuning_cache.read_timings(library_path()).values()
    assert timing.least[ALGORITHMS.index("direct")] == 0.9
    assert (timing.best, timing.noise, timing.rounds) == (ALGORITHMS.index("direct"), 0.0, 6)


def test_a_choice_is_sure_on_a_quiet_machine_or_where_the_next_is_twice_as_far_off_as_the_noise() -> None:
    assert Timing({0: 1.0, 1: 1.01}, 0.02, 2).is_sure  # they are alike, and that is known
    assert Timing({0: 1.0, 1: 1.7}, 0.3, 2).is_sure
    assert not Timing({0: 1.0, 1: 1.5}, 0.3, 2).is_sure
    assert not Timing({0: 1.0, 1: 1.2}, 0.3, 2).is_sure
    assert Timing({0: 1.0, 1: 1.2}, 0.3, 24).is_settled


def test_the_noise_is_that_of_the_algorithms_that_may_be_the_best() -> None:
    times = {0: np.array([1.0, 1.25]), 1: np.array([1.2, 1.2]), 2: np.array([4.0, 9.0]), 3: np.array([3.0, np.inf])}
    assert Timing.of(times) == Timing({0: 1.0, 1: 1.2, 2: 4.0, 3: 3.0}, 0.25, 2)
    assert Timing.of({0: np.array([2.0, 1.0])}, 3) == Timing({0: 1.0}, 7.0, 2)


def test_of_one_more_round_the_noise_is_how_far_it_lies_from_the_earlier_ones() -> None:
    before = Timing({0: 1.0, 1: 1.1, 2: 4.0}, 0.3, 2)
    assert before.two_best == [0, 1]
    again = Timing({0: 1.02, 1: 1.045}, 0.0, 1).joined(before)
    assert again.least == {0: 1.0, 1: 1.045, 2: 4.0}
    assert (round(again.noise, 6), again.rounds) == (0.05, 3)  # 1.045 is 5 % below 1.1, 1.02 is 2 % above 1
    assert Timing({0: 1.6, 1: 1.7}, 0.0, 1).joined(before).noise == 0.3  # a busy round says nothing


def test_every_algorithm_is_timed_and_one_that_is_far_behind_only_once(tuning: Path) -> None:
    net = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    compile(net, torch.zeros(1, 16, 32, 32))
    (timing,) = tuning_cache.read_timings(library_path()).values()
    assert {ALGORITHMS[each] for each in timing.least} == {"direct", "winograd 2x2", "winograd 4x4"}
    assert all(0 < score < 1 for score in timing.least.values())
