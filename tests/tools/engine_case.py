"""A random program for the native library under construction, and what each of its values should be."""

import random
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from sanp.engine.lowering.program import ProgramWriter


@dataclass
class Case:
    """A program under construction and what each of its values should be."""

    seed: int
    dice: random.Random = field(init=False)
    inputs: np.ndarray = field(init=False)
    writer: ProgramWriter = field(default_factory=ProgramWriter)
    values: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)
    """number in the program, expected value, and which channels may be non-zero (N, C)"""
    story: list[str] = field(default_factory=list)
    largest: float = 1.0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.noise = np.random.default_rng(self.seed)

    def randn(self, *shape: int) -> np.ndarray:
        return self.noise.standard_normal(shape).astype(np.float32)

    def keep(self, number: int, value: Tensor, live: Tensor, what: str) -> None:
        self.values.append((number, value, live))
        self.story.append(f"{what} -> {tuple(value.shape)}")

    def pick(self) -> tuple[int, Tensor, Tensor]:
        return self.values[-1] if self.dice.random() < 0.7 else self.dice.choice(self.values)
