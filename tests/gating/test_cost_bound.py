"""The bound of an image's cost: never below the cost, and the cost itself where no features are added."""

import numpy as np
import pytest
import torch
from torch import nn

import sanp
from sanp.gating.cost_bound import CostBound
from tests.engine.networks import EXAMPLES
from tests.networks.architectures import ARCHITECTURES
from tests.networks.parts import IMAGE, Net, block, conv
from tests.networks.strangers import STRANGERS

STYLES = {name: (make, torch.randn(1, *shape)) for name, (make, shape) in EXAMPLES.items()}
NETWORKS = {**STYLES, **STRANGERS, **ARCHITECTURES}


def random_decisions(gated: sanp.GatedNetwork, samples: int = 40) -> dict[str, torch.Tensor]:
    """Of all densities, the same number for all layers of a sample in half of the samples."""
    generator = torch.Generator().manual_seed(0)
    common = torch.rand(samples, 1, generator=generator)
    found = {}
    for name, layer in gated.cost.gates.items():
        density = torch.where(torch.arange(samples)[:, None] % 2 == 0, common, torch.rand(samples, 1))
        found[name] = (torch.rand(samples, layer.out_channels, generator=generator) < density).double()
    return found


def both(gated: sanp.GatedNetwork) -> tuple[np.ndarray, np.ndarray]:
    """The cost and the bound of random decisions."""
    decisions = random_decisions(gated)
    bound = CostBound(gated.cost)
    counts = [decisions[name].sum(1).long().numpy() for name in bound.gates]
    return gated.cost.per_sample(decisions).numpy(), np.broadcast_to(bound(counts), (40,))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_never_below_the_cost(name: str) -> None:
    make, example = NETWORKS[name]
    gated = sanp.gate(make().eval(), example)
    cost, bound = both(gated)
    assert (bound >= cost).all()
    opened = [np.int64(layer.out_channels) for layer in gated.cost.gates.values()]
    assert int(CostBound(gated.cost)(opened)) == float(gated.cost.per_sample({}))  # with all gates open


def test_it_is_the_cost_in_a_chain_with_depthwise_and_pooled_layers() -> None:
    net = nn.Sequential(block(3, 12), nn.MaxPool2d(2), block(12, 12, groups=12), block(12, 8), conv(8, 4))
    cost, bound = both(sanp.gate(net, IMAGE))
    assert (bound == cost).all()


def test_channels_of_both_sides_of_an_addition_are_counted_up_to_the_width() -> None:
    """a and b: 3 > 4 channels, added, then c: 4 > 2; 8x8 positions, 3x3 kernels."""
    net = Net(lambda n, x: n.c(n.a(x) + n.b(x)), a=block(3, 4), b=block(3, 4), c=conv(4, 2))
    bound = CostBound(sanp.gate(net, IMAGE).cost)
    assert bound.gates == ("a.0", "b.0", "c")

    def by_hand(a: int, b: int, c: int) -> int:
        return 64 * (3 * 9 + 1) * (a + b) + 64 * (min(4, a + b) * 9 + 1) * c

    for counts in ((1, 1, 1), (1, 2, 2), (3, 3, 2), (4, 4, 1)):
        assert int(bound([np.int64(count) for count in counts])) == by_hand(*counts)


def test_its_numbers_for_the_engine() -> None:
    """One convolution 3 > 4 on 8x8, gated: one gate, one convolution; 64 positions, 9 taps, 3 inputs."""
    bound = CostBound(sanp.gate(nn.Sequential(conv(3, 4)), IMAGE).cost)
    assert bound.code() == [1, 1, 64, 9, 3, 3, 3, 0, 0, 4, 1, 0, 1, 4]
