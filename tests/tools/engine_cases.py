"""Random small programs for the native library, compared with double precision."""

from dataclasses import dataclass

import numpy as np
import torch

from tests.tools.engine_case import Case
from tests.tools.engine_steps import STEPS

TOLERANCE = 2e-5
"""of the largest number on the way: single against double precision, F(4x4) included"""


def random_case(seed: int) -> Case:
    """One to six operators over a random input."""
    case = Case(seed)
    dice = case.dice
    batch, channels = dice.choice([1, 1, 2, 3, 5]), dice.choice([1, 2, 3, 5, 8, 17, 40])
    height, width = dice.randint(1, 20), dice.randint(1, 20)
    if dice.random() < 0.08:  # many channels of few pixels, and more samples than go through a layer together
        batch, channels = dice.choice([1, 6, 20]), dice.choice([250, 390])
        height, width = dice.randint(1, 5), dice.randint(1, 5)
    x = case.randn(batch, channels, height, width)
    case.inputs = x
    number = case.writer.input(channels, height, width)
    case.keep(number, torch.from_numpy(x).double(), torch.ones(batch, channels, dtype=torch.bool), "input")
    for _ in range(dice.randint(1, 6)):
        dice.choice(STEPS)(case)
    case.writer.output(case.values[-1][0])
    return case


@dataclass(frozen=True)
class Outcome:
    """How far a program's output was from double precision."""

    difference: float
    """of the largest number on the way"""
    finite: bool
    story: str

    @property
    def right(self) -> bool:
        return self.finite and self.difference <= TOLERANCE


def run_case(case: Case) -> Outcome:
    """Runs the program with random algorithms and threads."""
    program = case.writer.build()
    for op in range(program.operators):
        found = program.algorithms(op)
        if found:
            program.choose(op, case.dice.choice(found))
    if case.dice.random() < 0.5:
        program.settle()
    threads = case.dice.choice([1, 1, 2, 3])
    (y,), finite = program.run([case.inputs], threads)
    expected = case.values[-1][1].reshape(y.shape).numpy()
    scale = max(case.largest, float(np.abs(expected).max(initial=0)))
    difference = float(np.abs(y - expected).max(initial=0)) / scale
    story = f"seed {case.seed}: {difference:.2e} of {scale:.2e} with {threads} threads in " + "; ".join(case.story)
    return Outcome(difference, bool(finite.all()), story)


def wrong_cases(seeds: range) -> list[str]:
    """What is wrong with the programs of these seeds; nothing if all agree."""
    outcomes = [run_case(random_case(seed)) for seed in seeds]
    return [outcome.story for outcome in outcomes if not outcome.right]
