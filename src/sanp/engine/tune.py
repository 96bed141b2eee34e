"""Picks each convolution's algorithm by timing all of them on this machine; what was measured once is remembered."""

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sanp.engine import tuning_cache
from sanp.engine.library import NativeProgram, library_path
from sanp.engine.names import ALGORITHMS

_ROUNDS, _ROUNDS_TOGETHER = 4, 12
"""threads that share an image are timed by the wall clock, which other processes disturb"""
_WEIGHT_OF_A_TEAM = 3
Key = tuple[object, ...]


def tune(program: NativeProgram, keys: Sequence[Key], inputs: Sequence[NDArray[np.float32]], threads: int) -> None:
    """Sets the fastest algorithm of every convolution. ``keys`` says of each operator what its time depends on.

    One thread is timed, by its own clock, where each has samples of its own. Those that have to share one are timed
    together as well, and both times decide, mostly the team's: at times a machine gives threads less than a core each,
    or cores without a common cache. Several samples share the fetching of weights, so their number may decide too.
    """
    choices = {op: found for op in range(program.operators) if len(found := program.algorithms(op)) > 1}
    samples = len(inputs[0])
    team = threads if samples < threads else 1
    open_channels = np.zeros((samples, max(1, program.gates)), np.int32)
    program.run(inputs, 1, live=open_channels)
    density = (open_channels[0] // 8).tolist()  # neighbouring densities choose alike
    named = {op: json.dumps([program.instruction_set, keys[op], density, samples, team]) for op in choices}
    library = library_path()
    remembered = tuning_cache.read(library)
    if any(remembered.get(key) not in choices[op] for op, key in named.items()):
        seconds = _measure(program, choices, inputs, 1)
        if team > 1:
            seconds *= _measure(program, choices, inputs, team) ** _WEIGHT_OF_A_TEAM
        measured = {key: min(choices[op], key=lambda found: float(seconds[found, op])) for op, key in named.items()}
        tuning_cache.add(library, measured)
        remembered |= measured
    for op, key in named.items():
        program.choose(op, remembered[key])


def _measure(
    program: NativeProgram, choices: dict[int, list[int]], inputs: Sequence[NDArray[np.float32]], team: int
) -> NDArray[np.float64]:
    """The least time of every operator under each algorithm, rounds interleaved."""
    best = np.full((len(ALGORITHMS), program.operators), np.inf)
    for _ in range(_ROUNDS if team == 1 else _ROUNDS_TOGETHER):
        for algorithm in range(len(ALGORITHMS)):
            for op, found in choices.items():
                program.choose(op, algorithm if algorithm in found else found[0])
            program.run(inputs, team)  # each algorithm has weights of its own: they are timed where they will lie
            seconds = np.zeros(program.operators)
            program.run(inputs, team, seconds=seconds)
            best[algorithm] = np.minimum(best[algorithm], seconds)
    return best
