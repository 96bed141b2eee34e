"""One look at some images: what the network answers, what each image costs, which channels it opens."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sanp.accounting import Accounted, Accounting, FixedCost
from sanp.gate import ungated_cost
from sanp.record import record
from sanp.trace import evaluating


@dataclass(frozen=True)
class Seen:
    """What a forward in evaluation mode showed."""

    probabilities: Tensor
    """(N, K)"""
    flops: Tensor
    """(N,)"""
    open: Mapping[str, Tensor]
    """layer name to (N, C_out): which of its channels were computed; layers that are always dense are left out"""


class Onlooker:
    """A network with what is needed to see what it does."""

    def __init__(self, network: nn.Module, example: Tensor) -> None:
        self.network = network
        self.cost: Accounting
        if isinstance(network, Accounted):
            self.cost = network.cost
        else:
            self.cost = FixedCost(ungated_cost(network, example), {}, {})

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Seen:
        """Runs normalised images (N, C, H, W)."""
        with evaluating(self.network), record(self.network) as gates:
            probabilities = self.network(x).float().softmax(1)
        decisions = {name: gate.decision.double() for name, gate in gates.items()}
        opened = {name: mask.expand(len(x), -1) for name, mask in self.cost.open_outputs(decisions).items()}
        return Seen(probabilities, self.cost.per_sample(decisions).expand(len(x)), opened)
