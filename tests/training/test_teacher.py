"""A teacher that knows nothing is noticed; distillation takes outputs of any kind."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.core.errors import TeacherWarning
from sanp.training.distillation import default_distill_loss, distillation, squared_difference
from sanp.training.teacher import LEAST, knowledge
from tests.conftest import SmallNet

Batches = list[tuple[Tensor, Tensor]]
QUICK = sanp.FitConfig(warmup_epochs=0, joint_epochs=2, norm_batches=0, calibrate_images=0, precision="fp32")


def cross_entropy(output: Any, target: Any) -> Tensor:
    return F.cross_entropy(output, target)


def test_an_untrained_network_knows_nothing_and_a_trained_one_does(
    small_net: nn.Module, squares_loader: Batches
) -> None:
    assert knowledge(small_net, squares_loader, cross_entropy) == pytest.approx(0, abs=LEAST / 2)
    sanp.pretrain(small_net, squares_loader, epochs=4, progress=False)
    known = knowledge(small_net, squares_loader, cross_entropy)
    assert known is not None and known > 0.5


def test_a_confident_network_that_is_always_wrong_knows_nothing(squares_loader: Batches) -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 20 * F.one_hot((squares_labels[: len(x)] + 1) % 4, 4).float()

    squares_labels = squares_loader[0][1]
    known = knowledge(Wrong(), squares_loader[:1], cross_entropy)
    assert known is not None and known < 0


def test_images_of_one_class_or_single_images_tell_nothing(small_net: nn.Module, squares_loader: Batches) -> None:
    x, y = squares_loader[0]
    assert knowledge(small_net, [(x, torch.zeros_like(y))], cross_entropy) is None
    assert knowledge(small_net, [(x[:1], y[:1]), (x[1:2], y[1:2])], cross_entropy) is None


def test_fit_without_a_teacher_that_knows_nothing_is_fit_without_distillation(squares_loader: Batches) -> None:
    networks = []
    for distill in (0.7, 0.0):
        torch.manual_seed(1)
        gated = sanp.gate(SmallNet(), squares_loader[0][0])
        config = sanp.FitConfig(**{**vars(QUICK), "distill": distill})
        if distill:
            with pytest.warns(TeacherWarning, match=r"knows next to nothing.*sanp\.pretrain"):
                sanp.fit(gated, squares_loader, "50%", config=config, progress=False)
        else:
            sanp.fit(gated, squares_loader, "50%", config=config, progress=False)
        networks.append(gated.state_dict())
    assert all(torch.equal(networks[0][name], networks[1][name]) for name in networks[0])


def test_a_given_teacher_that_knows_nothing_is_left_out_too(small_net: nn.Module, squares_loader: Batches) -> None:
    gated = sanp.gate(small_net, squares_loader[0][0])
    with pytest.warns(TeacherWarning, match="the given teacher"):
        sanp.fit(gated, squares_loader, "50%", config=QUICK, teacher=SmallNet(), progress=False)


def test_a_good_teacher_stays_and_is_asked_in_evaluation_mode(small_net: nn.Module, squares_loader: Batches) -> None:
    sanp.pretrain(small_net, squares_loader, epochs=4, progress=False)
    teacher = copy.deepcopy(small_net).train()
    before = copy.deepcopy(teacher.state_dict())
    gated = sanp.gate(small_net, squares_loader[0][0])
    sanp.fit(gated, squares_loader, "50%", config=QUICK, teacher=teacher, progress=False)
    assert teacher.training
    assert all(torch.equal(before[name], after) for name, after in teacher.state_dict().items())


class Two(nn.Module):
    """Two outputs in a structure of one's own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.net, self.kind = SmallNet(), kind

    def forward(self, x: Tensor) -> Any:
        logits = self.net(x)
        brightness = logits.mean(1)
        return {
            "tuple": (logits, brightness),
            "dict": {"logits": logits, "brightness": brightness},
            "other dict": {"class": logits, "brightness": brightness},
        }[self.kind]


@pytest.mark.parametrize("kind, own", [("tuple", False), ("dict", False), ("tuple", True), ("other dict", True)])
def test_several_outputs_are_distilled(kind: str, own: bool, squares_loader: Batches, squares_test: Batches) -> None:
    def loss(output: Any, target: Tensor) -> Tensor:
        logits = output[0] if isinstance(output, tuple) else output["class"]
        return F.cross_entropy(logits, target)

    net = Two(kind)
    sanp.pretrain(net, squares_loader, epochs=4, loss=loss if own else None, progress=False)
    gated = sanp.gate(net, squares_loader[0][0])
    config = sanp.FitConfig(warmup_epochs=1, joint_epochs=6, norm_batches=8, calibrate_images=256, precision="fp32")
    sanp.fit(gated, squares_loader, "50%", config=config, loss=loss if own else None, progress=False)
    x, y = squares_test[0]
    with torch.no_grad():
        output = gated.eval()(x)
    logits = output[0] if kind == "tuple" else output["class" if own else "logits"]
    assert float((logits.argmax(1) == y).float().mean()) > 0.97


def test_an_output_without_logits_asks_for_a_loss(squares_loader: Batches) -> None:
    with pytest.raises(sanp.SanpError, match="give fit a loss of your own"):
        sanp.pretrain(Two("other dict"), squares_loader, epochs=1, progress=False)


def test_maps_are_distilled_by_the_mean_over_their_places() -> None:
    output, wanted = torch.randn(2, 5, 3, 3), torch.randn(2, 5, 3, 3)
    places = [distillation(output[:, :, i, j], wanted[:, :, i, j], 2.0) for i in range(3) for j in range(3)]
    assert float(distillation(output, wanted, 2.0)) == pytest.approx(float(torch.stack(places).mean()))


def test_the_squared_difference_is_one_for_the_mean_and_tensors_that_hardly_vary_count_little() -> None:
    wanted = torch.randn(64)
    assert float(squared_difference(wanted.mean().expand(64), wanted)) == pytest.approx(1.0)
    same = {"a": wanted, "b": [torch.ones(3)]}
    assert float(squared_difference(same, same)) == 0.0
    near = {"a": wanted, "b": [torch.ones(3) + 0.1]}
    assert float(squared_difference(near, same)) == pytest.approx(0.01 / float(wanted.var(correction=0)), rel=1e-4)


def test_numbers_are_compared_by_their_difference_and_classes_by_their_distribution() -> None:
    output, wanted = torch.randn(8, 4), torch.randn(8, 4)
    classes, numbers = torch.randint(4, (8,)), torch.randn(8, 4)
    assert default_distill_loss(output, wanted, classes, 2.0, own_loss=True) == distillation(output, wanted, 2.0)
    by_number = default_distill_loss(output, wanted, numbers, 2.0, own_loss=True)
    assert by_number == squared_difference(output, wanted)


def test_a_distill_loss_of_one_s_own_is_used(small_net: nn.Module, squares_loader: Batches) -> None:
    asked = []

    def apart(output: Tensor, wanted: Tensor) -> Tensor:
        asked.append(wanted.requires_grad)
        return (output - wanted).abs().mean()

    sanp.pretrain(small_net, squares_loader, epochs=4, progress=False)
    gated = sanp.gate(small_net, squares_loader[0][0])
    sanp.fit(gated, squares_loader, "50%", config=QUICK, epochs=1, distill_loss=apart, progress=False)
    assert asked == [False] * len(squares_loader)
