"""Architectures that people bring go through the whole battery, and the cost model against counts that are not ours."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import sanp
from sanp.core.modules import tensors_in
from sanp.gating.count import trace_batch
from sanp.gating.gating import gate
from sanp.gating.sites import ON_A_VECTOR
from sanp.gating.verify import gates_by, largest_difference
from sanp.spm.recording import record
from sanp.testing import check_network
from sanp.testing.case import run
from sanp.testing.nonzero_count import random_gates, randomize
from sanp.tracing.masks import Liveness
from tests.networks.architectures import ARCHITECTURES
from tests.networks.parts import IMAGE, Checkpointed, block, conv

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's about scripts and checkpoints
INSIDE = "the convolution is called inside a larger module, not as a module of its own"
MIXED = "its rows are not the samples of the batch"
DENSE = {
    "kernels of each sample's own": {"forward": INSIDE, "last": MIXED},
    "a script inside": {"forward": INSIDE},
    "EfficientNet": {f"{block}.{part}": ON_A_VECTOR for block in (1, 2) for part in ("squeeze", "excite")},
}
UNKNOWN = {"kernels of each sample's own": {"convolution across samples": 1}, "attention": {"bmm": 1}}
NOTHING_CLOSED = {"a recurrent convolution", "a script inside", "kernels of each sample's own"}
"""no convolution that is called once reads gated channels"""
PASSED_OVER = {
    "a hook that means the network": {"check_deepcopy"},
    "half precision": {"check_compiled"},  # the engine computes in float32
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_passes_every_check(name: str) -> None:
    report = check_network(*ARCHITECTURES[name])
    assert report.skipped == DENSE.get(name, {})
    assert report.unknown == UNKNOWN.get(name, {})
    assert report.skipped_checks.keys() == PASSED_OVER.get(name, set())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_dense_flops_are_pytorchs_own_count(name: str) -> None:
    make, example = ARCHITECTURES[name]
    net = make()
    _, batch = trace_batch(net, example)
    with FlopCounterMode(display=False) as counter:
        run(net, batch)
    counted = sum(flops for op, flops in counter.get_flop_counts()["Global"].items() if "convolution" in str(op))
    cost = gate(net, example).cost
    added = sum(layer.positions * layer.out_channels for layer in cost.layers)  # the formula's one for each output
    assert cost.dense_flops == counted / 2 / len(tensors_in(batch)[0]) + added


@pytest.mark.parametrize("name", sorted(ARCHITECTURES.keys() - {"half precision"}))
def test_what_the_cost_leaves_out_may_be_anything(name: str) -> None:
    """The kernels' parts that read channels said to be zero are made huge, and nothing changes."""
    make, example = ARCHITECTURES[name]
    gated = gate(make(), example)
    generator = torch.Generator().manual_seed(1)
    randomize(gated.net, generator)
    fixed = {layer: _Fixed(spm) for layer, spm in random_gates(gated, generator).items()}
    with gates_by(gated, fixed):  # type: ignore[arg-type]
        with record(gated) as gates:
            expected = copy.deepcopy(run(gated, example))
        poisoned = _poison(gated, {layer: each.decision for layer, each in gates.items()})
        assert largest_difference(run(gated, example), expected) < 1e-6
    assert poisoned > 0 or name in NOTHING_CLOSED


class _Fixed(nn.Module):
    """The same random decisions at each call, for one sample."""

    def __init__(self, gates: nn.Module) -> None:
        super().__init__()
        self.decided = gates(torch.zeros(1, 1))

    def forward(self, x: Tensor) -> Any:
        return self.decided


def _poison(gated: sanp.GatedNetwork, decisions: dict[str, Tensor]) -> int:
    modules = {name: layer.conv for name, layer in gated.layers.items()}
    names = [layer.name for layer in gated.cost.layers]
    count = 0
    for layer in gated.cost.layers:
        module = modules.get(layer.name)
        if isinstance(module, nn.Conv2d) and layer.groups == 1 and f"{layer.name}:2" not in names:
            (live,) = Liveness(gated.cost.topology.masks, [layer.inputs])(decisions)
            closed = live[0] == 0
            module.weight.data[:, closed] = 1e6
            count += int(closed.sum())
    return count


@pytest.mark.parametrize("depthwise", [True, False])
def test_a_checkpointed_block_has_the_gradients_of_a_plain_one(depthwise: bool) -> None:
    gradients = []
    for checkpointed in (True, False):
        torch.manual_seed(0)
        net = Checkpointed()
        if not depthwise:
            net.inner[1] = block(12, 12)
        gated = gate(net, IMAGE, spm=sanp.SPMConfig(noise=0.0)).train()
        if not checkpointed:
            inner, first, last = gated.net.inner, gated.net.first, gated.net.last
            gated.net.forward = lambda x, f=first, g=inner, h=last: h((y := f(x)) + g(y))
        budget = sanp.Budget(gated, "60%")
        total = torch.zeros(())
        for scale in (1.0, 2.0):  # two forwards, one backward: each is run again with its own gates
            torch.manual_seed(1)
            with record(gated) as gates:
                total = total + gated(scale * torch.cat((IMAGE, -IMAGE))).square().mean()
            total = total + budget.loss(gates)
        total.backward()
        gradients.append([parameter.grad for parameter in gated.parameters()])
    for again, plain in zip(*gradients, strict=True):
        assert again is not None and plain is not None and torch.allclose(again, plain, rtol=1e-5, atol=1e-7)


def test_reentrant_checkpointing_is_an_error_that_says_what_to_give() -> None:
    gated = gate(Checkpointed(reentrant=True), IMAGE).train()
    with record(gated) as gates:
        loss = gated(torch.cat((IMAGE, IMAGE))).square().mean()
    with pytest.raises(sanp.SanpError, match="use_reentrant=False"):
        (loss + sanp.Budget(gated, "60%").loss(gates)).backward()


def test_a_module_that_gives_a_tuple_is_left_dense_with_the_reason() -> None:
    class Pair(nn.Conv2d):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), None

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair, self.norm, self.last = Pair(3, 4, 3), nn.BatchNorm2d(4), conv(4, 2)

        def forward(self, x: Tensor) -> Any:
            return self.last(self.norm(self.pair(x)[0]))

    assert gate(Net(), IMAGE).skipped == {"pair": "its module takes or gives more than one tensor"}


def test_samples_taken_one_by_one_are_counted_once() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = conv(3, 4)

        def forward(self, images: Tensor) -> Any:
            return torch.stack([self.layer(image) for image in images])

    gated = gate(Loop(), torch.randn(5, 3, 8, 8))
    assert gated.dense_flops == 8 * 8 * (3 * 9 + 1) * 4 and gated.skipped == {"layer": INSIDE}


def test_a_layer_that_the_example_leaves_out_is_listed() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.extra = conv(3, 4), conv(4, 2)

        def forward(self, x: Tensor) -> Any:
            y = self.layer(x)
            return (y, self.extra(y)) if self.training else y

    assert gate(Auxiliary(), IMAGE).skipped == {"extra": "did not run on the example"}
