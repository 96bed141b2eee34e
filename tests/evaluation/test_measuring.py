import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sanp
from tests.conftest import SmallNet

DENSE = 896 + 192  # TwoConvs on 4x4: see test_objective.py


@pytest.fixture
def gated(two_convs: nn.Module) -> sanp.GatedNetwork:
    """Opens channel 0 of ``first`` always and channel 1 for bright images; three channels of ``second``."""
    gated = sanp.gate(two_convs, torch.zeros(1, 3, 4, 4), spm=sanp.SPMConfig(standardize=False))
    first, second = (layer.spm.saliency for layer in gated.layers.values())
    with torch.no_grad():
        first.w1.weight.fill_(1.0)
        first.w2.weight.copy_(torch.tensor([[0.0], [1.0]]))
        first.w2.bias.copy_(torch.tensor([1.0, -1.0]))
        second.w2.weight.zero_()
        second.w2.bias.copy_(torch.tensor([1.0, 1.0, 1.0, -1.0]))
    return gated


def images(*means: float) -> Tensor:
    return torch.stack([torch.full((3, 4, 4), float(mean)) for mean in means])


def test_flops_layers_and_channel_types_worked_out_by_hand(gated: sanp.GatedNetwork) -> None:
    # s of channel 1 of `first` is relu(3 mean) - 1: open for the mean 1, shut for 0 and -1
    report = sanp.evaluate(gated, [(images(1.0, 0.0), torch.tensor([0, 1])), (images(-1.0), torch.tensor([2]))])
    both, one = 896 + 16 * (2 + 1) * 3, 448 + 16 * (1 + 1) * 3
    assert report.per_sample.tolist() == [both, one, one]
    assert report.flops == pytest.approx((both + 2 * one) / 3)
    assert report.dense_flops == DENSE
    assert report.kept == pytest.approx((both + 2 * one) / 3 / DENSE)
    assert report.pruned == pytest.approx(1 - report.kept)
    first, second = report.layers
    assert (first.never, first.sometimes, first.always) == (1, 1, 0)
    assert (second.never, second.sometimes, second.always) == (3, 0, 1)
    assert first.kept == pytest.approx(4 / 6)
    assert first.flops == pytest.approx((896 + 2 * 448) / 3)
    # SPMs: means over 3 * 16 and 2 * 16 inputs; hidden units max(1, C_out / 4) = 1 and 1
    assert report.overhead_flops == (48 + 3 + 2) + (32 + 2 + 4)


def test_accuracy_and_confusion_count_every_image(two_convs: nn.Module) -> None:
    with torch.no_grad():
        two_convs.classifier.weight.zero_()
        two_convs.classifier.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))  # always says 1
    report = sanp.evaluate(two_convs, [(images(0, 1, 2), torch.tensor([0, 1, 1])), (images(3), torch.tensor([2]))])
    assert report.accuracy == 0.5 and report.error == 0.5
    assert np.array_equal(report.confusion, [[0, 1, 0], [0, 2, 0], [0, 1, 0]])
    assert report.kept == 1.0 and report.overhead_flops == 0


def test_the_paper_s_count_takes_the_density_of_the_convolution_before(gated: sanp.GatedNetwork) -> None:
    report = sanp.evaluate(gated, [(images(0.0), torch.tensor([0]))])
    # a chain: half of `first` is open, so `second` sees half of its inputs, as it does in truth
    assert report.paper_flops == pytest.approx(report.flops)


def test_evaluation_leaves_the_modes_and_the_random_numbers_alone(gated: sanp.GatedNetwork) -> None:
    gated.train()
    gated.net.norm.eval() if hasattr(gated.net, "norm") else None
    modes = [module.training for module in gated.modules()]
    state = torch.get_rng_state()
    sanp.evaluate(gated, [(images(1.0), torch.tensor([0]))])
    assert [module.training for module in gated.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_a_report_is_plain_json(gated: sanp.GatedNetwork) -> None:
    report = sanp.evaluate(gated, [(images(1.0), torch.tensor([0]))])
    again = json.loads(json.dumps(report.as_dict()))
    assert again["flops"] == report.flops and again["layers"][0]["name"] == "first"


def test_what_cannot_be_evaluated_is_refused(two_convs: nn.Module) -> None:
    with pytest.raises(sanp.SanpError, match="empty"):
        sanp.evaluate(two_convs, [])
    with pytest.raises(sanp.SanpError, match="labels go from 0 to 7, but the network has 3 classes"):
        sanp.evaluate(two_convs, [(images(1, 1), torch.tensor([0, 7]))])
    with pytest.raises(sanp.SanpError, match="not finite"):
        sanp.evaluate(two_convs, [(images(float("nan")), torch.tensor([0]))])


def test_a_class_for_each_pixel_is_measured_by_pixel_and_costs_by_image() -> None:
    net = nn.Conv2d(3, 2, 1)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor([1.0, 0.0]))  # always says 0
    targets = torch.zeros(2, 4, 4, dtype=torch.long)
    targets[0, 0] = 1  # 4 of 32 pixels
    report = sanp.evaluate(net, [(images(0.0, 1.0), targets)])
    assert report.accuracy == 28 / 32 and np.array_equal(report.confusion, [[28, 0], [4, 0]])
    assert report.per_sample.tolist() == [16 * (3 + 1) * 2] * 2
    with pytest.raises(sanp.SanpError, match="a class for each of its places"):
        sanp.evaluate(net, [(images(0.0, 1.0), torch.tensor([0, 1]))])


def test_an_image_of_several_rows_costs_their_mean(gated: sanp.GatedNetwork) -> None:
    class Crops(nn.Module):
        """Two crops of each image in the batch; a class for each image, or for each crop."""

        def __init__(self, together: bool) -> None:
            super().__init__()
            self.net, self.together = gated.net, together

        def forward(self, x: Tensor) -> Tensor:  # (N, 2, C, H, W)
            out = self.net(x.flatten(0, 1))
            return out.unflatten(0, (len(x), 2)).mean(1) if self.together else out

    both, one = 896 + 16 * (2 + 1) * 3, 448 + 16 * (1 + 1) * 3
    crops = torch.stack((images(1.0, 0.0), images(0.0, 0.0)))
    for together, labels in ((True, torch.tensor([0, 1])), (False, torch.tensor([0, 1, 0, 1]))):
        network = sanp.GatedNetwork(Crops(together), gated.cost.topology, {}, gated.origin)
        report = sanp.evaluate(network, [(crops, labels)])
        assert report.per_sample.tolist() == [(both + one) / 2, one]
        assert report.confusion.sum() == len(labels)


def test_logits_are_taken_from_an_output_object(two_convs: nn.Module) -> None:
    class Output:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    class Wrapped(nn.Module):
        def forward(self, x: Tensor) -> Output:
            return Output(two_convs(x))

        def __init__(self) -> None:
            super().__init__()
            self.net = two_convs

    batch = [(images(0.0, 1.0, 2.0), torch.tensor([0, 1, 2]))]
    assert sanp.evaluate(Wrapped(), batch).accuracy == sanp.evaluate(two_convs, batch).accuracy


def test_a_report_prints_as_a_table_that_fits_a_terminal(squares_test: list[tuple[Tensor, Tensor]]) -> None:
    gated = sanp.gate(SmallNet(), squares_test[0][0][:1])
    report = sanp.evaluate(gated, squares_test)
    lines = str(report).splitlines()
    assert lines[0].startswith("accuracy") and "of 1024 images" in lines[0]
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[4:]] == ["features.0", "features.3", "features.6"]
    assert repr(report) == f"Report(1024 images: accuracy {report.accuracy:.2%}, 100.00% of the dense FLOPs)"
