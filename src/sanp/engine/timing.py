"""What is known of a convolution's algorithms: the least score of each, and how sure the choice is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_QUIET = 0.03
"""times of one algorithm that differ by no more than this share were measured on a quiet machine"""
_FAR = 2.0
"""so many times the noise away, another algorithm is no rival: 1.6 of it once chose one that takes 1.6 times as long"""
_MOST_ROUNDS = 1_000_000
"""more than these are damage"""
_ENOUGH = 24
"""rounds after which a choice stays as it is, sure or not"""


@dataclass(frozen=True)
class Timing:
    """Scores of algorithms, the lower the better, from one or several measurements."""

    least: dict[int, float]
    """number of an algorithm to its least score"""
    noise: float
    """how far apart the two least scores of one algorithm lie, as a share: the most of those that may be the best"""
    rounds: int
    """how often the algorithms were timed, over all measurements"""

    @property
    def best(self) -> int:
        """The algorithm with the least score."""
        return min(self.least, key=lambda each: self.least[each])

    @property
    def two_best(self) -> list[int]:
        """The two algorithms with the least scores."""
        return sorted(self.least, key=lambda each: self.least[each])[:2]

    @property
    def margin(self) -> float:
        """How much more the next best algorithm scores, as a share."""
        first, second = sorted(self.least.values())[:2]
        return second / first - 1 if first > 0 else 0.0

    @property
    def is_sure(self) -> bool:
        """The machine was quiet, or the next best algorithm is much farther off than the noise."""
        return self.noise <= _QUIET or self.margin > _FAR * self.noise

    @property
    def is_settled(self) -> bool:
        """The choice is sure, or was measured so often that more would not help: the algorithms are alike."""
        return self.is_sure or self.rounds >= _ENOUGH

    @classmethod
    def of(cls, times: Mapping[int, NDArray[np.float64]], power: int = 1) -> "Timing":
        """From the times of each algorithm, round by round, infinite where it was not timed; scores are their powers.

        An algorithm that was timed once has no noise: it was far behind another, or all others were behind it.
        """
        ordered = {each: np.sort(np.asarray(found, np.float64) ** power) for each, found in times.items()}
        best = min(found[0] for found in ordered.values())
        twice = [found for found in ordered.values() if len(found) > 1 and np.isfinite(found[1])]
        noise = max((float(found[1] / found[0]) - 1 for found in twice if found[0] < 1.5 * best), default=0.0)
        return cls({each: float(found[0]) for each, found in ordered.items()}, noise, max(map(len, ordered.values())))

    def times(self, other: "Timing") -> "Timing":
        """The products of two scores."""
        least = {each: score * other.least[each] for each, score in self.least.items()}
        return Timing(least, self.noise + other.noise, self.rounds)

    def joined(self, before: "Timing | None") -> "Timing":
        """This and an earlier measurement: the least scores of both, and the noise of the quieter one.

        Of a measurement of one round the noise is how far its scores lie from the earlier ones.
        """
        if before is None:
            return self
        least = before.least | {each: min(score, before.least.get(each, score)) for each, score in self.least.items()}
        noise = self.noise
        if self.rounds == 1:
            near = {each: score for each, score in self.least.items() if score < 1.5 * min(least.values())}
            noise = max(
                (abs(score / max(before.least[each], 1e-30) - 1) for each, score in near.items()), default=math.inf
            )
        return Timing(least, min(noise, before.noise), self.rounds + before.rounds)

    def as_json(self) -> dict[str, Any]:
        """What a file holds."""
        least = {str(each): float(f"{score:.4g}") for each, score in self.least.items()}
        return {"least": least, "noise": round(self.noise, 4), "rounds": self.rounds}

    @classmethod
    def from_json(cls, given: Any) -> "Timing | None":
        """What a file holds, or None if it is not sound."""
        if not isinstance(given, dict) or not isinstance(given.get("least"), dict) or len(given["least"]) < 2:
            return None
        noise, rounds, least = given.get("noise", -1), given.get("rounds"), given["least"]
        numbers = [noise, *least.values()]
        if (
            type(rounds) is not int
            or rounds > _MOST_ROUNDS
            or any(type(each) not in (int, float) or not 0 <= each < 1e30 for each in numbers)
        ):
            return None
        if not all(each.isdecimal() and len(each) < 4 for each in least):
            return None
        return cls({int(each): float(score) for each, score in least.items()}, float(noise), max(0, rounds))
