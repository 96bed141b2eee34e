"""The engine called by many threads at a time; the tool takes minutes, the test a second."""

from dataclasses import replace

import pytest

from tests.tools.engine_load import Load, networks, run

pytestmark = pytest.mark.filterwarnings("ignore::sanp.core.errors.SlowWarning")


def test_threads_get_right_answers_while_budgets_are_turned() -> None:
    load = run(1.0, 4)
    assert load.wrong == []
    assert load.calls >= 4
    assert load.range_turns >= 1
    assert [served.fast.plan.native for served in load.served] == [True, True, False, True]  # one calls torch meanwhile


def test_a_wrong_answer_ends_the_load() -> None:
    load = Load(networks()[:1])
    served = load.served[0]
    load.served = [replace(served, answers={place: [y[0] + 1e-6] for place, y in served.answers.items()})]
    load.call(0)
    assert load.wrong[0].startswith("another answer to")
