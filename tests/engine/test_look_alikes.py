"""Modules that look like torch's own and compute something else: each is right, whatever its gates do."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import sanp
from sanp.engine.agreement import disagreement
from sanp.spm.recording import decisions_of

IMAGES = torch.randn(6, 3, 12, 12, generator=torch.Generator().manual_seed(0))

pytestmark = pytest.mark.filterwarnings("ignore::sanp.core.errors.SlowWarning")  # some run in torch


class NormAct(nn.BatchNorm2d):
    """A batch norm with the activation inside, as most of timm's families have it."""

    def __init__(self, channels: int, act: nn.Module | None = None) -> None:
        super().__init__(channels)
        self.act = nn.ReLU(inplace=True) if act is None else act

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(super().forward(x))
        return y


class NormTwice(nn.BatchNorm2d):
    """A batch norm that multiplies once more by a constant of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.gain = nn.Parameter(torch.linspace(-1, 2, channels)[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.gain + 0.3


class SquaredNorm(nn.BatchNorm2d):
    """A batch norm that is not affine at all."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square()


class StandardisedConv(nn.Conv2d):
    """Weights with a mean of 0 and a deviation of 1 for each filter."""

    def forward(self, x: Tensor) -> Tensor:
        mean, std = self.weight.mean((1, 2, 3), keepdim=True), self.weight.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, (self.weight - mean) / (std + 1e-5), self.bias, self.stride, self.padding)


class SameConv(nn.Conv2d):
    """TensorFlow's padding: more on the right and below where it does not divide."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, self.bias, self.stride)


class ScaledConv(nn.Conv2d):
    """A convolution with a gain of its own after it."""

    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


def hooked() -> nn.Module:
    conv = nn.Conv2d(3, 8, 3, padding=1)
    conv.register_forward_hook(lambda module, given, out: out * 2 + 1)
    return conv


def replaced() -> nn.Module:
    """A batch norm whose forward was replaced in the object itself."""
    norm = nn.BatchNorm2d(8)
    norm.forward = lambda x: F.silu(F.batch_norm(x, norm.running_mean, norm.running_var))  # type: ignore[method-assign]
    return norm


KINDS = {
    "relu inside": lambda: (nn.Conv2d(3, 8, 3, padding=1), NormAct(8)),
    "silu inside": lambda: (nn.Conv2d(3, 8, 3, padding=1, bias=False), NormAct(8, nn.SiLU())),
    "sigmoid inside": lambda: (nn.Conv2d(3, 8, 3, padding=1), NormAct(8, nn.Sigmoid())),
    "leaky inside": lambda: (nn.Conv2d(3, 8, 3, padding=1), NormAct(8, nn.LeakyReLU(0.2))),
    "gain inside": lambda: (nn.Conv2d(3, 8, 3, padding=1), NormTwice(8)),
    "square inside": lambda: (nn.Conv2d(3, 8, 3, padding=1), SquaredNorm(8)),
    "standardised": lambda: (StandardisedConv(3, 8, 3, padding=1), nn.BatchNorm2d(8)),
    "padding of its own": lambda: (SameConv(3, 8, 3, 2), nn.BatchNorm2d(8)),
    "padding before it": lambda: (nn.Sequential(nn.ZeroPad2d((2, 1, 0, 3)), nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8)),
    "padding for its own sake": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ZeroPad2d((1, 0, 2, 0))), nn.ReLU()),
    "scaled": lambda: (ScaledConv(3, 8, 3, padding=1), nn.BatchNorm2d(8)),
    "weight norm": lambda: (weight_norm(nn.Conv2d(3, 8, 3, padding=1)), nn.BatchNorm2d(8)),
    "hook": lambda: (hooked(), nn.BatchNorm2d(8)),
    "forward replaced": lambda: (nn.Conv2d(3, 8, 3, padding=1), replaced()),
}
NATIVE = tuple(kind for kind in KINDS if kind not in ("square inside", "forward replaced"))


def network(kind: str) -> nn.Module:
    torch.manual_seed(1)
    first, norm = KINDS[kind]()
    net = nn.Sequential(
        first, norm, nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), NormAct(8), nn.Conv2d(8, 6, 1),
        nn.BatchNorm2d(6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
    )  # fmt: skip
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d) and module.weight is not None:
                module.weight.uniform_(-1.5, 1.5)
                module.bias.uniform_(-1, 1)
        net.train()
        net(4 * IMAGES)
    return net.eval()


@pytest.mark.parametrize("kept", [None, "85%", "70%"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_module_is_taken_for_what_it_computes(kind: str, kept: str | None) -> None:
    gated = sanp.gate(network(kind), IMAGES[:1]).eval()
    if kept is not None:
        gated.set_budget(kept, IMAGES)
    fast = sanp.compile(gated, IMAGES[:2])
    assert fast.plan.native or kind not in NATIVE, str(fast.plan)
    with torch.no_grad(), sanp.record(gated) as gates:
        wanted = gated(IMAGES)
    given = fast.run_forced(IMAGES, decisions_of(gates))[0][0] if fast.plan.instruction_set != "none" else fast(IMAGES)
    assert torch.allclose(given, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


def test_a_wrong_engine_is_noticed_though_every_sample_has_a_near_tie() -> None:
    gated = sanp.gate(network("relu inside"), IMAGES[:1]).eval()
    gated.set_budget("50%", IMAGES)
    for layer in gated.layers.values():  # every score of one channel is at its threshold, for every image
        with torch.no_grad():
            layer.spm.saliency.w2.weight[0] = 0
            layer.spm.saliency.w2.bias[0] = layer.spm.threshold
    fast = sanp.compile(gated, IMAGES[:2])
    assert disagreement(fast, gated, IMAGES) is None
    other = sanp.gate(network("leaky inside"), IMAGES[:1]).eval()
    other.load_state_dict(gated.state_dict())
    assert disagreement(fast, other, IMAGES) == "the native result differs from torch's"


def test_scores_that_differ_are_named_by_their_layer() -> None:
    gated = sanp.gate(network("relu inside"), IMAGES[:1]).eval()
    gated.set_budget("70%", IMAGES)
    fast = sanp.compile(gated, IMAGES[:2])
    with torch.no_grad():
        gated.layers["4"].spm.saliency.w2.bias[2] += 0.01
        gated.layers["4"].spm.scales = False
        fast_scale = fast.run_forced(IMAGES, {name: torch.ones(6, 8 if name == "0" else 6) for name in gated.layers})
    assert set(fast_scale[1]) == {"0", "4"}
    said = disagreement(fast, gated, IMAGES)
    assert said is not None and "differ" in said
