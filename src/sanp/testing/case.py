"""A network under test, and the errors of a check that fails or does not apply."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import nn

from sanp.core.copying import copy_of
from sanp.core.modules import call_with, evaluating, unwrapped
from sanp.gating.count import trace_batch
from sanp.gating.gating import gate
from sanp.gating.network import GatedNetwork

SAME = 1e-5
"""relative difference up to which two outputs are the same"""


class CheckError(AssertionError):
    """A network failed the battery; the message says which check and what was found."""


class NotApplicable(Exception):
    """A check does not apply to this network; the message is the reason."""


class Case:
    """A network under test: the original, its gated form, and a batch of at least two samples.

    ``make_net`` builds the network; the batch is made from ``example_input``.
    """

    def __init__(self, make_net: Callable[[], nn.Module], example_input: Any) -> None:
        torch.manual_seed(0)
        self.net = unwrapped(make_net())
        _, self.batch = trace_batch(self.net, example_input)
        self.gated = gate(self.net, example_input)
        self.generator = torch.Generator().manual_seed(0)
        self.native_share: float | None = None
        """of the FLOPs, what the engine runs natively; None before the network was compiled"""
        self.in_torch = ""
        """why the engine leaves some of it to torch"""
        self.difference: float | None = None
        """the engine's largest difference, as a share of the output's scale; None where nothing ran natively"""

    @cached_property
    def expected(self) -> Any:
        """What the original puts out in evaluation mode."""
        return run(self.net, self.batch)

    def chosen(self) -> GatedNetwork:
        """The gated network with random saliencies around 1, so that about half its channels are pruned.

        They are the same for each sample. If they were predicted from the features of an untrained network, they would
        grow from layer to layer beyond all bounds.
        """
        chosen = fresh(self.gated)
        for layer in chosen.layers.values():
            for parameter in layer.spm.parameters():
                random = torch.rand(parameter.shape, generator=self.generator) + 0.5
                parameter.data.copy_(random if parameter.dim() == 1 else torch.zeros_like(parameter))
            layer.spm.threshold.fill_(1.0)
        return chosen


def fresh(gated: GatedNetwork) -> GatedNetwork:
    """A copy of a gated network, which a check may change."""
    twin = copy_of(gated)
    assert isinstance(twin, GatedNetwork)
    return twin


@torch.no_grad()
def run(network: nn.Module, batch: Any) -> Any:
    """What a network puts out for a batch in evaluation mode; random numbers that it draws are the same each time."""
    with evaluating(network), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return call_with(network, batch)


def ensure(holds: bool, message: str) -> None:
    """Raises a CheckError with this message unless the condition holds."""
    if not holds:
        raise CheckError(message)
