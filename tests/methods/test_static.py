"""STATIC's own learning rate."""

import pytest
import torch

from sanp.config import FitConfig
from sanp.fit import Task
from sanp.methods.static import RATE, Static
from tests.conftest import SmallNet


@pytest.mark.parametrize("given, used", [(None, RATE), (0.007, 0.007)])
def test_constant_gates_learn_faster_unless_a_rate_is_given(given: float | None, used: float) -> None:
    images, labels = torch.randn(8, 3, 8, 8), torch.zeros(8, dtype=torch.long)
    config = FitConfig(warmup_epochs=1, joint_epochs=1, spm_lr=given)
    stage = next(Static().stages(SmallNet(), Task(loader=[(images, labels)], budget="50%", config=config)))
    assert stage.name == "warm-up"
    assert [group["lr"] for tuned in stage.optimizers for group in tuned.optimizer.param_groups] == [used]
