import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.errors import BudgetWarning
from sanp.training.distillation import distillation
from sanp.training.finish import estimate_norms
from sanp.training.precision import Format
from sanp.training.stage import Progress
from sanp.training.task import Task
from sanp.training.three_stages import fit_stages, pretrain_stage
from sanp.training.watching import run_stages

Batches = list[tuple[Tensor, Tensor]]
QUICK = sanp.FitConfig(
    pretrain_epochs=4, warmup_epochs=1, joint_epochs=12, lr=0.05, precision="fp32", norm_batches=8, calibrate_images=512
)


def pretrained(net: nn.Module, loader: Batches) -> nn.Module:
    for _ in pretrain_stage(net, Task(loader=loader, budget="50%", config=QUICK)).run():
        pass
    return net


@pytest.mark.parametrize("budget", ["60%", "35%", 0.225])
def test_fit_meets_the_budget_and_keeps_the_accuracy(
    budget: object, small_net: nn.Module, squares_loader: Batches, squares_test: Batches
) -> None:
    net = pretrained(small_net, squares_loader)
    before = sanp.evaluate(net, squares_test)
    gated = sanp.gate(net, squares_loader[0][0])
    sanp.fit(gated, squares_loader, budget, config=QUICK)
    after = sanp.evaluate(gated, squares_test)
    assert before.accuracy > 0.95
    assert after.accuracy > before.accuracy - 0.02
    assert sanp.evaluate(gated, squares_loader).kept == pytest.approx(gated.kept_for(budget), abs=1e-3)
    # These images differ much in cost: on others the mean may be off by three of its standard errors.
    error = after.per_sample.std() / after.dense_flops * (1 / 512 + 1 / 1024) ** 0.5
    assert after.kept == pytest.approx(gated.kept_for(budget), abs=3 * error)


def test_warm_up_moves_the_spms_and_nothing_else(small_net: nn.Module, squares_loader: Batches) -> None:
    gated = sanp.gate(small_net, squares_loader[0][0])
    before = copy.deepcopy(gated.state_dict())
    seen: list[Progress] = []
    stages = fit_stages(gated, Task(loader=squares_loader, budget="50%", config=QUICK))
    seen.extend(next(stages).run())
    assert {p.stage for p in seen} == {"warm-up"}
    assert {p.cost_weight for p in seen} == {0.0}
    after = gated.state_dict()
    moved = {name for name, tensor in gated.named_parameters() if not torch.equal(before[name], after[name])}
    assert moved == {name for name, _ in gated.named_parameters() if ".spm." in name}
    assert all(parameter.requires_grad for parameter in gated.parameters())


def test_the_joint_stage_moves_kernels_and_spms(small_net: nn.Module, squares_loader: Batches) -> None:
    gated = sanp.gate(small_net, squares_loader[0][0])
    before = copy.deepcopy(gated.state_dict())
    stages = fit_stages(gated, Task(loader=squares_loader, budget="50%", config=QUICK))
    for _ in next(stages).run():
        pass
    step = next(iter(next(stages).run()))
    assert step.stage == "joint" and step.cost_weight is not None
    after = gated.state_dict()
    for part in ("conv.weight", "norm.weight", "spm.saliency.w2.weight", "spm.saliency.w1.weight"):
        assert not torch.equal(before[f"net.features.0.{part}"], after[f"net.features.0.{part}"]), part


def test_noise_and_soft_gates_end_before_training_does(small_net: nn.Module, squares_loader: Batches) -> None:
    gated = sanp.gate(small_net, squares_loader[0][0])
    hashing = next(iter(gated.layers.values())).spm.binarize
    noises = []
    config = sanp.FitConfig(warmup_epochs=0, joint_epochs=2, settle=0.5, precision="fp32", distill=0.0)
    sanp.fit(gated, squares_loader, "50%", config=config, on_step=lambda p: noises.append(hashing.noise))
    assert noises == [0.1] * 8 + [0.0] * 8
    assert hashing.noise == 0.1  # as it was


def test_batch_norms_know_the_gates_that_far_moved_thresholds_leave(
    small_net: nn.Module, squares_loader: Batches
) -> None:
    """Nothing is trained, so the cost goes from 100 to 30 % by thresholds alone."""
    gated = sanp.gate(pretrained(small_net, squares_loader), squares_loader[0][0])
    sanp.fit(gated, squares_loader, "30%", config=dataclasses.replace(QUICK, warmup_epochs=0, joint_epochs=0))
    again = copy.deepcopy(gated)
    estimate_norms(again, squares_loader, QUICK.norm_batches, Format(again, "fp32"))
    for name, mean in gated.named_buffers():
        if name.endswith("running_mean"):
            torch.testing.assert_close(mean, again.get_buffer(name), rtol=0.05, atol=0.05)


def test_same_seed_same_result(squares_loader: Batches) -> None:
    from tests.conftest import SmallNet

    def weights() -> dict[str, Tensor]:
        torch.manual_seed(7)
        gated = sanp.gate(SmallNet(), squares_loader[0][0])
        config = sanp.FitConfig(warmup_epochs=1, joint_epochs=1, precision="fp32")
        sanp.fit(gated, squares_loader, "50%", config=config)
        return gated.state_dict()

    first, second = weights(), weights()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_impossible_budget_is_refused_before_anything_is_trained(
    small_net: nn.Module, squares_loader: Batches
) -> None:
    gated = sanp.gate(small_net, squares_loader[0][0])
    before = copy.deepcopy(gated.state_dict())
    with pytest.raises(sanp.SanpError, match="give at least that"):
        sanp.fit(gated, squares_loader, "0.1%")
    assert all(torch.equal(before[name], tensor) for name, tensor in gated.state_dict().items())


def test_distillation_is_t_squared_times_the_divergence() -> None:
    wanted, output = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    p = 1 / (1 + torch.exp(torch.tensor(-1.0)))  # softmax of (1, 0), the teacher at T = 2
    divergence = p * torch.log(p / 0.5) + (1 - p) * torch.log((1 - p) / 0.5)
    assert distillation(output, wanted, 2.0).item() == pytest.approx(4 * divergence.item())
    assert distillation(wanted, wanted, 3.0).item() == pytest.approx(0.0, abs=1e-7)


def test_a_loss_of_one_s_own_and_targets_of_any_kind(small_net: nn.Module, squares_loader: Batches) -> None:
    pairs = [(x, {"quarter": y}) for x, y in squares_loader]
    gated = sanp.gate(small_net, squares_loader[0][0])
    config = sanp.FitConfig(warmup_epochs=1, joint_epochs=2, precision="fp32", distill=0.0)
    seen: list[Progress] = []

    def loss(output: Tensor, target: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(output, target["quarter"])

    sanp.fit(gated, pairs, "60%", config=config, loss=loss, on_step=seen.append)
    assert seen[-1].accuracy is None
    assert seen[-1].loss < seen[0].loss


def test_a_loss_that_is_not_finite_stops_with_the_step_and_what_to_try(
    small_net: nn.Module, squares_loader: Batches
) -> None:
    squares_loader[2] = (squares_loader[2][0] * float("nan"), squares_loader[2][1])
    with pytest.raises(sanp.SanpError, match=r"nan at step 3 of stage pretrain.*learning rate"):
        pretrained(small_net, squares_loader)


def test_loaders_that_cannot_serve_are_refused(small_net: nn.Module, squares_loader: Batches) -> None:
    gated = sanp.gate(small_net, squares_loader[0][0])
    with pytest.raises(sanp.SanpError, match="loader is empty"):
        sanp.fit(gated, [], "50%")
    with pytest.raises(sanp.SanpError, match="no length"):
        sanp.fit(gated, (batch for batch in squares_loader), "50%")  # type: ignore[arg-type]
    with pytest.raises(sanp.SanpError, match=r"sanp\.gate"):
        sanp.fit(small_net, squares_loader, "50%")  # type: ignore[arg-type]


def test_a_generator_of_stages_is_run_to_its_end_and_gives_the_network(
    small_net: nn.Module, squares_loader: Batches
) -> None:
    gated = sanp.gate(small_net, squares_loader[0][0])
    config = sanp.FitConfig(warmup_epochs=0, joint_epochs=1, precision="fp32")
    finished = run_stages(fit_stages(gated, Task(loader=squares_loader, budget="70%", config=config)))
    assert finished is gated


def test_a_budget_that_calibration_misses_is_told() -> None:
    """Four channels of one layer that see one image: steps of a quarter, and the budget lies between two of them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    image = torch.randn(1, 3, 8, 8)
    gated = sanp.gate(net, image)
    config = dataclasses.replace(QUICK, joint_epochs=1, norm_batches=0)
    with pytest.warns(BudgetWarning, match=r"computes \d+\.\d% of the dense FLOPs for the 1 image .* is 62\.0%: no"):
        sanp.fit(gated, [(image, torch.tensor([1]))], "62%", config=config)
    reached = sanp.evaluate(gated, [(image, torch.tensor([1]))]).kept
    assert abs(reached - 0.62) > 0.01
