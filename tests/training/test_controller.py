import pytest

from sanp.core.errors import SanpError
from sanp.training.controller import BudgetController, ControllerConfig, IntegralController


def test_the_paper_s_weight_is_lambda0_times_the_gap() -> None:
    paper = ControllerConfig(strength=0.01, lowest=-0.01, highest=0.01, memory=0.0, anneal=0.0)
    controller = BudgetController(0.35, paper)
    assert controller.update(0.5) == pytest.approx(0.0015)
    assert controller.update(0.25) == pytest.approx(-0.001)
    assert controller.update(0.35) == pytest.approx(0.0)


def test_the_weight_follows_a_running_mean_of_the_share_that_is_kept() -> None:
    controller = BudgetController(0.5, ControllerConfig(strength=1, lowest=-1, highest=1, memory=0.7, anneal=0.0))
    assert controller.update(1.0) == pytest.approx(0.5)
    assert controller.update(0.5) == pytest.approx(0.7 * 1.0 + 0.3 * 0.5 - 0.5)
    assert controller.running_kept == pytest.approx(0.85)


def test_the_weight_is_clipped_on_both_sides() -> None:
    controller = BudgetController(0.35, ControllerConfig(memory=0.0))
    assert controller.update(1.0) == 4.0
    assert controller.update(0.0) == -2.0
    assert controller.update(0.36) == pytest.approx(1.0)


def test_the_target_falls_in_a_straight_line_and_then_stays() -> None:
    controller = BudgetController(0.4, ControllerConfig(anneal=0.5))
    assert [controller.target_at(p) for p in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([1.0, 0.7, 0.4, 0.4])


def test_a_restored_controller_goes_on_with_the_same_numbers() -> None:
    first, second = (BudgetController(0.3, ControllerConfig()) for _ in range(2))
    first.update(0.9)
    first.update(0.5)
    second.restore(first.state())
    assert second.update(0.4) == first.update(0.4)


@pytest.mark.parametrize(
    "wrong", [{"strength": 0}, {"lowest": 1.0}, {"highest": -1.0}, {"memory": 1.0}, {"anneal": 2.0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SanpError, match=next(iter(wrong))):
        ControllerConfig(**wrong)


def test_an_integral_controller_adds_up_the_gaps_within_its_bounds() -> None:
    plain = ControllerConfig(memory=0.0, anneal=0.0)
    level = IntegralController(BudgetController(0.5, plain), 10, gain=2.0, start=1.0, lowest=0.0, highest=1.5)
    level.update(0.7)
    assert level.level == pytest.approx(1.4)  # 1 + 2 (0.7 - 0.5)
    level.update(0.7)
    assert level.level == 1.5
    level.update(0.0)
    assert level.level == pytest.approx(0.5)
    again = IntegralController(BudgetController(0.5, plain), 10, gain=2.0, start=1.0, lowest=0.0, highest=1.5)
    again.restore(level.state())
    assert (again.level, again.step, again.running_kept) == (level.level, 3, 0.0)
