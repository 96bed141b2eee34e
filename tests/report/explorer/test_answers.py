import numpy as np

from sanp.report.explorer.answers import Answer, breaking_point
from sanp.report.explorer.budgets import Setting


def _answers(labels: list[int]) -> list[Answer]:
    return [
        Answer(Setting(place / 10, 0.0), np.eye(3, dtype=np.float32)[label], 0.0) for place, label in enumerate(labels)
    ]


def test_the_answer_breaks_where_it_first_changes_on_the_way_down() -> None:
    answers = _answers([2, 1, 0, 1, 1, 0])
    for start, share in ((4, 0.2), (5, 0.2), (1, 0.0)):  # 5 is wrong itself: down from 4, the dearest right one
        broken = breaking_point(answers, 1, start)
        assert broken is not None and broken.setting.kept == share
    assert breaking_point(_answers([1, 1, 1]), 1, 2) is None
    assert breaking_point(_answers([1, 1, 1]), 0, 2) is None
