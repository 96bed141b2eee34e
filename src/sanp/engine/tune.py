"""Picks each convolution's algorithm by timing all of them on this machine; what was measured once is remembered."""

import json
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sanp.engine import tuning_cache
from sanp.engine.library import library_path
from sanp.engine.lowering.operators import Conv
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.names import ALGORITHMS
from sanp.engine.native_program import NativeProgram
from sanp.engine.timing import Timing

_ROUNDS = 4
"""the most times that one compilation measures an algorithm"""
_SECONDS, _SECONDS_AGAIN = 6.0, 0.3
"""how long measuring goes on: what is not known yet, of which two rounds are always made, and what is known but not
surely, of which the two best algorithms are timed again in one round at least"""
_OUT = 2.0
"""an algorithm that took so many times as long as another in the first round is not measured again"""
_SHORT = 0.01
"""seconds of a run below which the weights are brought into the caches by a run before"""
_WEIGHT_OF_A_TEAM = 3
"""the power of a team's time in the score"""
_FEW = 8
"""input channels of a convolution with a stride, below which transforms take longer than they save"""
Key = tuple[object, ...]
"""what the time of an operator depends on, as JSON can hold it"""
Choices = Mapping[int, Sequence[int]]
"""operator to the numbers of the algorithms that can compute it"""


def tune_program(
    program: NativeProgram,
    writer: ProgramWriter,
    inputs: Sequence[NDArray[np.float32]],
    threads: int,
    open_shares: Sequence[float],
    note: Callable[[float], None] = lambda share: None,
) -> None:
    """Sets the algorithm of every convolution to the one with the least score.

    score = t1 * tn**3, where t1 is one thread's time and tn the time of all threads on one image. Both count because
    a machine may give threads less than a core each, or cores without a common cache. With at least as many samples
    as threads, each thread has samples of its own, and score = t1.

    What earlier compilations have measured is taken from the cache; what was not sure there is measured again.
    ``writer`` has written the program. ``inputs`` are those of the program, of as many samples as calls will have:
    samples share the fetching of weights, so their number may decide too. ``open_shares`` has for each gate the share
    of its channels that is open on them. ``note`` is told the share that is done.
    """
    choices = {op: found for op in range(program.operators) if len(found := program.algorithms(op)) > 1}
    samples = len(inputs[0])
    team = threads if samples < threads else 1
    densities = _densities(writer, open_shares)
    setting = [program.instruction_set, samples, team]
    named = {op: json.dumps([*setting, _timing_key(writer, op), *densities(op)]) for op in choices}
    library = library_path()
    remembered = tuning_cache.read_timings(library)
    held = {op: remembered[key] for op, key in named.items() if key in remembered}
    known = {op: timing for op, timing in held.items() if set(timing.least) == set(choices[op])}
    for op, timing in known.items():
        program.choose(op, timing.best)
    unknown = {op: found for op, found in choices.items() if op not in known}
    wanted = unknown | {op: timing.two_best for op, timing in known.items() if not timing.is_settled}
    if wanted:
        seconds, fewest = (_SECONDS, 2) if unknown else (_SECONDS_AGAIN, 1)
        measured = _timings(_measure(program, wanted, inputs, 1, seconds, fewest, note), wanted, 1)
        if team > 1:
            seen = _measure(program, wanted, inputs, team, seconds, fewest, note)
            together = _timings(seen, wanted, _WEIGHT_OF_A_TEAM)
            measured = {op: timing.times(together[op]) for op, timing in measured.items()}
        known |= {op: timing.joined(known.get(op)) for op, timing in measured.items()}
        tuning_cache.add(library, {named[op]: known[op] for op in measured})
    for op, timing in known.items():
        program.choose(op, timing.best)


def choose_usual(program: NativeProgram, writer: ProgramWriter) -> None:
    """Sets the algorithm of every convolution to the one that is usually the fastest for maps of its size."""
    for number, operator in enumerate(writer.operators):
        found = program.algorithms(number)
        if isinstance(operator, Conv) and len(found) > 1:
            side = min(writer.shapes[operator.out][1:])
            order = ("winograd 4x4", "winograd 2x2") if side >= 12 else ("winograd by lanes", "winograd 2x2")
            names = [ALGORITHMS[each] for each in found]
            strided = ("winograd 7x7 stride 2", *(["winograd stride 2"] if operator.weight.shape[1] >= _FEW else []))
            wanted = next((name for name in (*order, *strided) if name in names), names[0])
            program.choose(number, ALGORITHMS.index(wanted))


def _timing_key(writer: ProgramWriter, op: int) -> Key:
    """What the time of a convolution depends on, but for the gates."""
    conv = writer.operators[op]
    assert isinstance(conv, Conv)
    adds = conv.residual >= 0
    return (writer.shapes[conv.x], adds, writer.shapes[conv.out], *conv.window.numbers(), conv.groups)


def _densities(writer: ProgramWriter, open_shares: Sequence[float]) -> Callable[[int], tuple[int, int]]:
    """Of a convolution, the share of its channels that is open, in eighths, and that of all gates, in quarters.

    For a few channels more or less the choice is the same.
    """
    overall = round(4 * sum(open_shares) / len(open_shares)) if open_shares else 4

    def densities(op: int) -> tuple[int, int]:
        conv = writer.operators[op]
        assert isinstance(conv, Conv)
        return round(8 * open_shares[conv.gate]) if conv.gate >= 0 else 8, overall

    return densities


def _measure(
    program: NativeProgram,
    choices: Choices,
    inputs: Sequence[NDArray[np.float32]],
    team: int,
    seconds: float,
    fewest: int,
    note: Callable[[float], None],
) -> NDArray[np.float64]:
    """(rounds, algorithms, operators): the time of each operator under each algorithm; infinite if not measured.

    ``fewest`` rounds are made, and more while the ``seconds`` last.
    """
    end = time.perf_counter() + seconds
    left = {op: list(found) for op, found in choices.items()}
    rounds: list[NDArray[np.float64]] = []
    while left and len(rounds) < _ROUNDS and (len(rounds) < fewest or time.perf_counter() < end):
        times = np.full((len(ALGORITHMS), program.operators), np.inf)
        turns = max(map(len, left.values()))
        for turn in range(turns):
            now = {op: found[turn % len(found)] for op, found in left.items()}
            for op, algorithm in now.items():
                program.choose(op, algorithm)
            taken = _run(program, inputs, team)
            for op, algorithm in now.items():
                times[algorithm, op] = min(times[algorithm, op], taken[op])
            note((len(rounds) + (turn + 1) / turns) / _ROUNDS)
        rounds.append(times)
        for op in list(left):
            left[op] = [each for each in left[op] if times[each, op] < _OUT * times[left[op], op].min()]
            if len(left[op]) == 1:
                program.choose(op, left.pop(op)[0])
    return np.stack(rounds)


def _run(program: NativeProgram, inputs: Sequence[NDArray[np.float32]], team: int) -> NDArray[np.float64]:
    """The seconds of every operator in one run with warm caches."""
    seconds = np.zeros(program.operators)
    program.run(inputs, team, seconds=seconds)
    if seconds.sum() < _SHORT:
        seconds[:] = 0
        program.run(inputs, team, seconds=seconds)
    return seconds


def _timings(times: NDArray[np.float64], choices: Choices, power: int) -> dict[int, Timing]:
    """What the rounds say of each operator, with every time to a power."""
    return {op: Timing.of({each: times[:, each, op] for each in found}, power) for op, found in choices.items()}
