"""STATIC's own learning rate, and its gates without a scale."""

import pytest
import torch

import sanp
from sanp.methods.static import RATE, Static, static_spm
from sanp.spm.module import SPMConfig
from sanp.training.config import FitConfig
from sanp.training.task import Task
from tests.conftest import SmallNet


@pytest.mark.parametrize("given, used", [(None, RATE), (0.007, 0.007)])
def test_constant_gates_learn_faster_unless_a_rate_is_given(given: float | None, used: float) -> None:
    images, labels = torch.randn(8, 3, 8, 8), torch.zeros(8, dtype=torch.long)
    config = FitConfig(warmup_epochs=1, joint_epochs=1, spm_lr=given)
    stage = next(Static().stages(SmallNet(), Task(loader=[(images, labels)], budget="50%", config=config)))
    assert stage.name == "warm-up"
    assert [group["lr"] for tuned in stage.optimizers for group in tuned.optimizer.param_groups] == [used]


def test_features_are_multiplied_by_the_gates_alone_in_torch_and_in_the_engine() -> None:
    gated = Static().gate(SmallNet(), torch.randn(1, 3, 8, 8), spm=SPMConfig()).eval()
    with torch.no_grad():
        for layer in gated.layers.values():
            layer.spm.saliency.predict.w2.bias.copy_(torch.linspace(-1, 3, len(layer.spm.saliency.predict.w2.bias)))
    images = torch.randn(3, 3, 8, 8)
    with torch.no_grad(), sanp.record(gated) as gates:
        expected = gated(images)
    for gate in gates.values():
        assert 0 < gate.decision.mean() < 1
        assert torch.equal(gate.scale, gate.decision)
    assert torch.allclose(sanp.compile(gated, images)(images), expected, atol=1e-5)
    assert static_spm(3, 8, SPMConfig()).scales is False
