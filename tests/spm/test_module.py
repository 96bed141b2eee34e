"""The Saliency-and-Pruning Module: decisions, thresholds, groups, precision."""

import math

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.errors import SanpError
from sanp.spm.binarize import SemanticHashing
from sanp.spm.gated_conv import GatedConv
from sanp.spm.module import SPM, SPMConfig, build_spm


class Given(nn.Module):
    """A saliency that is what the test says."""

    flops = 7

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor([values]))

    def forward(self, x: Tensor) -> Tensor:
        return self.values.expand(len(x), -1)


def spm(values: list[float], group: int = 1, noise: float = 0.0, most: float | None = None) -> SPM:
    return SPM(Given(values), SemanticHashing(noise=noise, soft_share=0.0, per="sample"), most=most, group=group)


X = torch.randn(2, 3, 4, 4)


def test_a_channel_is_open_where_its_saliency_is_above_the_threshold() -> None:
    module = spm([0.5, -0.1, 2.0, 0.0]).eval()
    gates = module(X)
    assert gates.decision.tolist() == gates.applied.tolist() == [[1, 0, 1, 0]] * 2
    assert gates.saliency[0].tolist() == pytest.approx([0.5, -0.1, 2.0, 0.0])
    module.threshold.fill_(0.6)
    assert module(X).decision.tolist() == [[0, 0, 1, 0]] * 2
    module.threshold.fill_(9.0)
    assert module(X).decision.tolist() == [[0, 0, 1, 0]] * 2  # never none
    assert module.flops == 7


def test_features_are_multiplied_by_no_more_than_the_bound() -> None:
    module = spm([0.5, -0.1, 20.0], most=2.0).eval()
    layer = GatedConv("conv", nn.Conv2d(3, 3, 1), None, module)
    gates, y = module(X), layer.conv(X)
    assert gates.saliency[0].tolist() == pytest.approx([0.5, -0.1, 20.0])  # decisions and penalties see it whole
    assert torch.allclose(layer(X), y * torch.tensor([0.5, 0.0, 2.0])[:, None, None])


@pytest.mark.parametrize("most, finite", [(SPMConfig().most, True), (None, False)])
def test_an_outlier_does_not_grow_by_squares_from_layer_to_layer(most: float | None, finite: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(8, 8, 1) for _ in range(16)))
    gated = sanp.gate(net, torch.zeros(1, 8, 4, 4), spm=SPMConfig(most=most)).eval()
    for layer in gated.layers.values():
        nn.init.uniform_(layer.spm.saliency.w2.weight, 0, 1)
    with torch.no_grad():
        assert bool(gated(1e3 * torch.randn(64, 8, 4, 4)).isfinite().all()) == finite


def test_training_applies_noise_that_the_recorded_decision_does_not_have() -> None:
    module = spm([0.1] * 64, noise=5.0).train()
    gates = module(X)
    assert bool(gates.decision.all()) and not bool(gates.applied.all())
    gates.applied.sum().backward()
    assert module.saliency.values.grad.any() and not gates.decision.requires_grad


def test_the_gradient_of_the_scale_is_that_of_s_times_s1_for_open_and_closed_channels_alike() -> None:
    ln3 = math.log(3)
    module = spm([ln3, -ln3, 0.0]).train()
    gates = module(X[:1])
    assert gates.scale[0].tolist() == [pytest.approx(ln3), 0.0, 0.0] and gates.decision[0].tolist() == [1, 0, 0]
    gates.scale.sum().backward()
    # s1 = 0.8, 0.2, 0.5 and its slope 1.2 · 3/16 = 0.225 at ±ln 3, 0.3 at 0: s1 + s · slope
    assert module.saliency.values.grad[0].tolist() == pytest.approx([0.8 + 0.225 * ln3, 0.2 - 0.225 * ln3, 0.5])


@pytest.mark.parametrize("rule", ["product", "literal"])
@pytest.mark.parametrize("soft_share", [0.0, 0.5, 1.0])
def test_the_gradient_with_noise_is_what_autograd_gives_for_its_rule(rule: str, soft_share: float) -> None:
    torch.manual_seed(0)
    values = torch.linspace(-2, 2, 40)
    binarize = SemanticHashing(noise=1.0, soft_share=soft_share, per="sample")
    module = SPM(Given(values.tolist()), binarize, gradient=rule).train()  # type: ignore[arg-type]
    x = torch.zeros(64, 1, 1, 1)
    torch.manual_seed(7)
    gates = module(x)
    gates.scale.sum().backward()
    torch.manual_seed(7)  # the same draws, in the same order
    noise, soft = torch.randn(64, 40), torch.rand(64, 1) < soft_share
    s = values.expand(64, -1).clone().requires_grad_()
    s1 = (1.2 * torch.sigmoid(s + noise) - 0.1).clamp(0, 1)
    forward = torch.where(soft, s1, (s1 > 0.5).float()).detach()
    # product: d (s s1); literal: the gate that went forward, and s ds1/ds
    wanted = s * s1 if rule == "product" else s * forward + s.detach() * (s1 - s1.detach())
    wanted.sum().backward()
    assert s.grad is not None
    assert torch.allclose(module.saliency.values.grad[0], s.grad.sum(0), atol=1e-4)
    assert torch.allclose(gates.scale, values * forward, atol=1e-6)
    assert gates.drawn is not None and torch.equal(gates.drawn, (s1 > 0.5).float())


def test_neighbours_decide_together_by_their_mean() -> None:
    module = spm([1.0, -0.5, 0.2, -0.3, -1.0, 3.0], group=2).eval()
    assert module(X).decision[0].tolist() == [1, 1, 0, 0, 1, 1]  # means 0.25, -0.05, 1


@pytest.mark.parametrize("channels, wanted, group", [(16, 8, 8), (20, 8, 4), (7, 8, 1), (6, 4, 2), (6, 1, 1)])
def test_a_group_that_does_not_divide_the_channels_shrinks_to_one_that_does(
    channels: int, wanted: int, group: int
) -> None:
    built = build_spm(3, channels, SPMConfig(group=wanted))
    assert built.group == group
    assert built(X).decision.shape == (2, channels)


def test_an_untrained_module_changes_nothing() -> None:
    gates = build_spm(3, 8, SPMConfig()).eval()(X)
    assert bool((gates.saliency == 1).all()) and bool((gates.decision == 1).all())


def test_decisions_stay_in_single_precision_when_a_network_is_halved() -> None:
    module = build_spm(3, 8, SPMConfig())
    module.half()
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert module(X.half()).saliency.dtype == torch.float32
    module.double()
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float64}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"reduction": 0}, "reduction 0"),
        ({"noise": -1.0}, "noise -1.0"),
        ({"soft_share": 1.5}, "soft_share 1.5"),
        ({"per": "image"}, "per 'image'"),
        ({"most": 0.0}, "most 0.0"),
        ({"group": 0}, "group 0"),
        ({"slope": 0.5}, "slope 0.5 and shift 0.1"),
        ({"gradient": "other"}, "gradient"),
    ],
)
def test_settings_that_make_no_sense_are_errors(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SanpError, match=message):
        SPMConfig(**settings)  # type: ignore[arg-type]
