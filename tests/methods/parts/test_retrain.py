from dataclasses import replace

import pytest

from sanp.methods.parts.retrain import epochs_in_parts, total_lr
from sanp.training.config import FitConfig
from tests.methods.conftest import QUICK, task


@pytest.mark.parametrize(
    ("warmup", "joint", "parts", "wanted"),
    [(1, 12, (1,), [13]), (1, 12, (0.5, 0.5), [6, 7]), (0, 2, (1, 1, 1), [1, 0, 1]), (0, 1, (0.5, 0.5), [0, 1])],
)
def test_the_parts_of_a_method_are_as_long_as_sanps_stages(
    warmup: int, joint: int, parts: tuple[float, ...], wanted: list[int]
) -> None:
    config = replace(QUICK, warmup_epochs=warmup, joint_epochs=joint)
    assert epochs_in_parts(task(config=config), *parts) == wanted


def test_learning_rates_add_up_with_momentums_echo() -> None:
    config = FitConfig(lr=0.2, momentum=0.5, schedule="step", step_epochs=1)
    # Two epochs of 3 steps at 0.2, then at 0.02, each worth 1 / (1 - 0.5) in the long run
    assert total_lr(config, 2, 3) == pytest.approx((3 * 0.2 + 3 * 0.02) * 2)
    assert total_lr(config, 1, 2, weight=lambda progress: progress) == pytest.approx((0 + 0.5) * 0.2 * 2)
