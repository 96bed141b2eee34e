"""What a classifier says of single images, what they cost, and which channels they open."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sanp.core.modules import device_of, evaluating
from sanp.core.outputs import check_output
from sanp.gating.count import cost_of
from sanp.spm.recording import exact_decisions_of, record


@dataclass(frozen=True)
class Seen:
    """The results of one forward in evaluation mode."""

    probabilities: Tensor
    """(N, K): of each class"""
    flops: Tensor
    """(N,): of each image"""
    open: Mapping[str, Tensor]
    """layer name to (N, C_out): the channels that were computed; layers that are always dense are left out"""


class Onlooker:
    """Runs a classifier and reports the probabilities, FLOPs and open channels of each image.

    ``network`` may be pruned or not, and on any device; ``example`` is an input for it.
    """

    def __init__(self, network: nn.Module, example: Tensor) -> None:
        self.network = network
        self.cost = cost_of(network, example)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Seen:
        """Runs the network on normalised images (N, C, H, W), wherever they are; what is seen is on the CPU."""
        with evaluating(self.network), record(self.network) as gates:
            probabilities = self.network(x.to(device_of(self.network))).float().softmax(1).cpu()
        check_output(probabilities)
        decisions = {name: decision.cpu() for name, decision in exact_decisions_of(gates).items()}
        opened = {name: mask.expand(len(x), -1) for name, mask in self.cost.open_outputs(decisions).items()}
        return Seen(probabilities, self.cost.per_sample(decisions).expand(len(x)), opened)
