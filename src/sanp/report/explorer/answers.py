"""The network's answers to one image under several settings, and the budget at which the right one breaks."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sanp.report.explorer.budgets import Setting


@dataclass(frozen=True)
class Answer:
    """The answer under one setting."""

    setting: Setting
    probabilities: npt.NDArray[np.float32]
    """(K,)"""
    kept: float
    """what this image costs, of the dense FLOPs"""

    @property
    def label(self) -> int:
        """The most probable class."""
        return int(self.probabilities.argmax())


def breaking_point(answers: list[Answer], right: int, start: int) -> Answer | None:
    """The first answer that is not the class ``right`` on the way down from the position ``start``.

    ``answers`` go from the cheapest setting to the dearest. If the answer at ``start`` is not right, the way begins at
    the dearest right one. None if no answer is right, or all are on the way down.
    """
    good = [place for place, answer in enumerate(answers) if answer.label == right]
    if not good:
        return None
    place = start if start in good else good[-1]
    while place >= 0 and answers[place].label == right:
        place -= 1
    return answers[place] if place >= 0 else None
