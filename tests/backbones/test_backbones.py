import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sanp import backbones
from sanp.core.errors import SanpError
from sanp.gating.count import ungated_cost
from sanp.gating.gating import gate

# The paper's table 1 in millions; its ResNet-18 figure of 501 is unexplained (docs/deviations.md).
PAPER = {"m_cifarnet": 174.3, "vgg19": 398.5}
OTHERS = {"resnet50": 1_301_241_856, "mobilenet_v2": 89_603_584}
BY_FORMULA = {"m_cifarnet": 174_538_368, "vgg19": 398_434_304, "resnet18": 556_032_000, **OTHERS}
PARAMETERS = {
    "m_cifarnet": 1_296_074,
    "vgg19": 20_035_018,
    "resnet18": 11_173_962,
    "resnet50": 23_520_842,
    "mobilenet_v2": 2_236_682,
}


@pytest.mark.parametrize("name", backbones.BACKBONES)
def test_dense_flops_are_the_formula_s_torch_s_and_the_paper_s(name: str) -> None:
    net = backbones.build(name, num_classes=10).eval()
    cost = ungated_cost(net, torch.zeros(1, 3, 32, 32))
    assert cost.dense_flops == BY_FORMULA[name]
    with FlopCounterMode(display=False) as counter:
        net(torch.zeros(1, 3, 32, 32))
    linear = 2 * sum(m.weight.numel() for m in net.modules() if isinstance(m, torch.nn.Linear))
    multiply_adds = (counter.get_total_flops() - linear) // 2
    biases = sum(layer.positions * layer.out_channels for layer in cost.layers)  # the formula's + 1
    assert cost.dense_flops == multiply_adds + biases
    if name in PAPER:
        assert cost.dense_flops / 1e6 == pytest.approx(PAPER[name], rel=2e-3)


@pytest.mark.parametrize("name", backbones.BACKBONES)
def test_parameters_classes_and_sizes(name: str) -> None:
    net = backbones.build(name, num_classes=10)
    assert sum(p.numel() for p in net.parameters()) == PARAMETERS[name]
    wide = backbones.build(name, num_classes=7, image_size=48).eval()
    assert wide(torch.zeros(2, 3, 48, 48)).shape == (2, 7)


@pytest.mark.parametrize("name", backbones.BACKBONES)
def test_every_convolution_gets_a_gate_and_gating_changes_nothing_at_first(name: str) -> None:
    torch.manual_seed(0)
    net = backbones.build(name, num_classes=10).eval()
    x = torch.randn(2, 3, 32, 32)
    gated = gate(net, x)
    depthwise = {layer.name for layer in gated.cost.layers if layer.role == "follows"}
    convolutions = sum(isinstance(m, torch.nn.Conv2d) for m in net.modules())
    assert len(gated.layers) == convolutions - len(depthwise)
    assert len(depthwise) == (17 if name == "mobilenet_v2" else 0)
    assert gated.skipped == {}
    assert torch.equal(gated(x), net(x))


def test_wrong_names_and_sizes_are_refused() -> None:
    with pytest.raises(SanpError, match="did you mean resnet18"):
        backbones.build("resnet-18", num_classes=10)
    with pytest.raises(SanpError, match="at least 2"):
        backbones.build("vgg19", num_classes=1)
    with pytest.raises(SanpError, match="32x32"):
        backbones.build("vgg19", num_classes=10, image_size=16)


# Parameters, and billions of multiply-adds of a 224x224 image with the classifier, as torchvision's pages give them.
IMAGENET = {"resnet18": (11_689_512, 1.814), "resnet50": (25_557_032, 4.089), "mobilenet_v2": (3_504_872, 0.301)}


@pytest.mark.parametrize("name", IMAGENET)
def test_large_images_get_the_network_of_imagenet(name: str) -> None:
    net = backbones.build(name, num_classes=1000, image_size=224)
    parameters, billions = IMAGENET[name]
    assert sum(p.numel() for p in net.parameters()) == parameters
    cost = ungated_cost(net, torch.zeros(1, 3, 224, 224))
    biases = sum(layer.positions * layer.out_channels for layer in cost.layers)  # the formula's + 1
    assert (cost.dense_flops - biases + cost.dense_linear_flops) / 1e9 == pytest.approx(billions, abs=6e-4)


def test_the_stem_changes_above_64_pixels() -> None:
    assert backbones.build("resnet18", num_classes=4, image_size=64).conv.stride == (1, 1)
    assert backbones.build("resnet18", num_classes=4, image_size=65).conv.stride == (2, 2)
