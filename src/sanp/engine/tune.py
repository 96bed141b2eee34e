"""Picks each convolution's algorithm by timing all of them on this machine; what was measured once is remembered."""

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sanp.engine import tuning_cache
from sanp.engine.library import NativeProgram, library_path
from sanp.engine.lowering.operators import Conv
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.names import ALGORITHMS

_ROUNDS_ALONE, _ROUNDS_TOGETHER = 4, 12
"""threads that share an image are timed by the wall clock, which other processes disturb, and so more often"""
_WEIGHT_OF_A_TEAM = 3
"""the power of a team's time in the score"""
Key = tuple[object, ...]
"""what the time of an operator depends on, as JSON can hold it"""


def tune_program(
    program: NativeProgram, keys: Sequence[Key], inputs: Sequence[NDArray[np.float32]], threads: int
) -> None:
    """Sets the algorithm of every convolution to the one with the least score.

    score = t1 * tn**3, where t1 is one thread's time and tn the time of all threads on one image. Both count because
    a machine may give threads less than a core each, or cores without a common cache. With at least as many samples
    as threads, each thread has samples of its own, and score = t1.

    ``keys`` says of each operator what its time depends on. ``inputs`` are those of the program, of as many samples as
    calls will have: samples share the fetching of weights, so their number may decide too.
    """
    choices = {op: found for op in range(program.operators) if len(found := program.algorithms(op)) > 1}
    samples = len(inputs[0])
    team = threads if samples < threads else 1
    open_channels = np.zeros((samples, max(1, program.gates)), np.int32)
    program.run(inputs, 1, live=open_channels)
    density = (open_channels[0] // 8).tolist()  # of each gate; for a few channels more or less the choice is the same
    named = {op: json.dumps([program.instruction_set, keys[op], density, samples, team]) for op in choices}
    library = library_path()
    remembered = tuning_cache.read(library)
    if any(remembered.get(key) not in choices[op] for op, key in named.items()):
        score = _measure(program, choices, inputs, 1)
        if team > 1:
            score *= _measure(program, choices, inputs, team) ** _WEIGHT_OF_A_TEAM
        measured = {key: min(choices[op], key=lambda found: float(score[found, op])) for op, key in named.items()}
        tuning_cache.add(library, measured)
        remembered |= measured
    for op, key in named.items():
        program.choose(op, remembered[key])


def choose_usual(program: NativeProgram, writer: ProgramWriter) -> None:
    """Sets the algorithm of every convolution to the one that is usually the fastest for maps of its size."""
    for number, operator in enumerate(writer.operators):
        found = program.algorithms(number)
        if isinstance(operator, Conv) and len(found) > 1:
            side = min(writer.shapes[operator.out][1:])
            order = ("winograd 4x4", "winograd 2x2") if side >= 12 else ("winograd by lanes", "winograd 2x2")
            names = [ALGORITHMS[each] for each in found]
            wanted = next((name for name in (*order, "winograd stride 2") if name in names), names[0])
            program.choose(number, ALGORITHMS.index(wanted))


def _measure(
    program: NativeProgram, choices: dict[int, list[int]], inputs: Sequence[NDArray[np.float32]], team: int
) -> NDArray[np.float64]:
    """(algorithms, operators): the least time of each operator under each algorithm, over rounds of all algorithms."""
    best = np.full((len(ALGORITHMS), program.operators), np.inf)
    for _ in range(_ROUNDS_ALONE if team == 1 else _ROUNDS_TOGETHER):
        for algorithm in range(len(ALGORITHMS)):
            for op, found in choices.items():
                program.choose(op, algorithm if algorithm in found else found[0])
            program.run(inputs, team)  # brings this algorithm's weights into the caches
            seconds = np.zeros(program.operators)
            program.run(inputs, team, seconds=seconds)
            best[algorithm] = np.minimum(best[algorithm], seconds)
    return best
