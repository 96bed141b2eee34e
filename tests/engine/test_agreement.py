"""Only a decision on the edge of its threshold may differ between a network and its compiled form."""

import copy

import pytest
import torch
from torch import Tensor, nn

import sanp
from sanp.core.errors import SlowWarning
from sanp.engine.agreement import (
    NOTHING_TO_COMPARE,
    TOLERANCE,
    agree,
    disagreement,
    disagreement_when_open,
    near_ties,
    varied_batch,
)
from sanp.spm.binarize import SemanticHashing
from sanp.spm.module import SPM
from sanp.spm.recording import record
from sanp.spm.top_k import TopK


class Given(nn.Module):
    """A saliency that is the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def ties_of(spm: SPM, saliency: list[list[float]]) -> list[bool]:
    with near_ties(spm.eval()) as found:
        spm(torch.tensor(saliency))
    return found[0].tolist()


def test_a_score_at_its_threshold_is_a_near_tie() -> None:
    spm = SPM(Given(), SemanticHashing(noise=0, soft_share=0, per="sample"))
    spm.threshold.fill_(0.5)
    # The largest score is 1.5 - 0.5 = 1, so 1e-4 is the bound.
    assert ties_of(spm, [[1.5, 0.4], [0.50005, 0.2], [1.0, 0.4998]]) == [False, True, False]


def test_with_no_channel_open_only_the_largest_two_can_tie() -> None:
    spm = SPM(Given(), SemanticHashing(noise=0, soft_share=0, per="sample"))
    assert ties_of(spm, [[-1.0, -1.00005, -0.5], [-0.5, -0.50004, -1.0]]) == [False, True]


def test_winners_tie_where_the_last_of_them_and_the_next_do() -> None:
    spm = SPM(Given(), TopK(4, density=0.5))
    assert ties_of(spm, [[1.0, 0.9, 0.90005, 0.1], [1.0, 0.9, 0.1, 0.10001]]) == [True, False]


def test_one_sample_that_differs_without_a_tie_is_a_difference() -> None:
    expected = torch.eye(4)
    given = expected.clone()
    given[2] += 2e-4
    none, third = torch.zeros(4, dtype=torch.bool), torch.tensor([False, False, True, False])
    assert agree([expected + 0.9e-4], [expected], [none], 4)
    assert not agree([given], [expected], [none], 4)
    assert not agree([given], [expected], [third.roll(1)], 4)
    assert agree([given], [expected], [none, third], 4)
    assert not agree([given[:, :2]], [expected], [third], 4)


class Overflows(nn.Module):
    """A convolution whose result overflows for large images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * 1e30 * 1e5


def test_finite_samples_are_compared_though_another_is_not_finite() -> None:
    gated = sanp.gate(Overflows(), torch.zeros(1, 3, 8, 8)).eval()
    small, large = 1e-9 * torch.randn(2, 3, 8, 8), 1e9 * torch.ones(1, 3, 8, 8)
    fast = sanp.compile(gated, small)
    batch = torch.cat([small, large])
    assert not bool(gated(batch)[2].isfinite().all())
    assert disagreement(fast, gated, batch) is None
    assert disagreement(fast, gated, large) == NOTHING_TO_COMPARE
    with torch.no_grad():
        gated.layers["conv"].conv.bias += 1e-3
    assert disagreement(fast, gated, batch) == "the native result differs from torch's"


def test_an_engine_that_could_be_compared_with_nothing_is_not_given_out() -> None:
    gated = sanp.gate(Overflows(), torch.zeros(1, 3, 8, 8)).eval()
    with pytest.warns(SlowWarning, match="nothing can be compared"):
        fast = sanp.compile(gated, 1e9 * torch.ones(1, 3, 8, 8))
    assert fast.plan.instruction_set == "none"


def test_the_first_sample_alone_is_compared_with_its_row_of_the_batch() -> None:
    gated = sanp.gate(Overflows(), torch.zeros(1, 3, 8, 8)).eval()
    batch = 1e-9 * torch.randn(3, 3, 8, 8)
    fast = sanp.compile(gated, batch)
    ran: list[int] = []
    call = type(fast).__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(fast), "__call__", lambda self, x: (ran.append(len(x)), call(self, x))[1])
        assert disagreement(fast, gated, batch, alone=1) is None
        patch.setattr(type(fast), "__call__", lambda self, x: call(self, x) * 1.001)
        assert disagreement(fast, gated, batch, alone=1) == "the engine differs from itself"
    assert ran == [1]


def test_a_varied_batch_begins_with_the_example_and_has_no_sample_twice() -> None:
    example = torch.randn(2, 3, 4, 4)
    batch = varied_batch(example, 5)
    assert torch.equal(batch[:2], example)
    assert len({sample.numpy().tobytes() for sample in batch}) == 5
    assert torch.equal(varied_batch(example, 1), example[:1])


class Cancels(nn.Module):
    """The difference of two nearly equal maps, which has few correct digits in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)
        with torch.no_grad():
            self.other.weight.copy_(self.one.weight * (1 + 2e-4))
            self.other.bias.copy_(self.one.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) - self.other(x)


def test_a_difference_is_accepted_where_torch_is_as_far_from_double_precision() -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 16, 12, 12)
    gated = sanp.gate(Cancels(), images).eval()
    fast = sanp.compile(gated, images)
    assert fast.plan.native_share == 1
    with torch.no_grad():
        exact = copy.deepcopy(gated).double()(images.double())
        gap = float((fast(images) - gated(images)).abs().max() / exact.abs().max())
        assert gap > TOLERANCE  # else this test shows nothing
        assert disagreement(fast, gated, images) is None
        gated.layers["one"].conv.bias += 0.02 * exact.abs().max()  # now the engine is wrong, by two hundredths
    assert disagreement(fast, gated, images) == "the native result differs from torch's"


def test_a_channel_that_no_sample_opens_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net, images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)), torch.randn(3, 3, 8, 8)
    gated = sanp.gate(net, images[:1]).eval()
    with torch.no_grad():
        gated.layers["0"].spm.saliency.w2.bias[5] = -100
    fast, other = sanp.compile(gated, images), copy.deepcopy(gated)
    with torch.no_grad():
        other.layers["0"].conv.weight[5] *= 1.5
    with record(other) as gates:
        other(images)
    assert not bool(gates["0"].decision[:, 5].any())
    assert disagreement(fast, other, images) is None
    said = "the native result differs from torch's with all gates open"
    assert disagreement_when_open(fast, other, images, gates) == said
    assert disagreement_when_open(fast, gated, images, gates) is None
    monkeypatch.setattr("sanp.engine.building.disagreement_when_open", lambda *_: said)
    with pytest.warns(SlowWarning, match=said):
        sanp.compile(gated, images)
