"""Checks what ``gate`` promises: with all gates open and every saliency 1, the network computes what it did before."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.modules import call_with, evaluating, tensors_in
from sanp.gating.network import GatedNetwork
from sanp.spm.recording import Gates, record

GATING_TOLERANCE = 1e-4
"""largest accepted difference, relative to the largest output. Moved batch norms round differently; a wrong network
differs by far more."""


class OpenGates(nn.Module):
    """A substitute for an SPM: every channel open, every saliency 1. ``channels`` is the number of output channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Gates:  # (N, C_in, ...)
        """Ones for each sample and output channel."""
        ones = torch.ones(len(x), self.channels, device=x.device)
        return Gates(ones, ones, ones)


@contextmanager
def gates_by(gated: GatedNetwork, substitutes: dict[str, nn.Module]) -> Iterator[None]:
    """Inside, ``substitutes`` take the place of the SPMs; they are given by layer name and return :class:`Gates`."""
    layers = gated.layers
    originals = {name: layers[name].spm for name in substitutes}
    for name, substitute in substitutes.items():
        layers[name].spm = substitute  # type: ignore[assignment]
    try:
        yield
    finally:
        for name, spm in originals.items():
            layers[name].spm = spm


@contextmanager
def all_open(gated: GatedNetwork) -> Iterator[None]:
    """Inside, all gates are open and every saliency is 1."""
    channels = {name: layer.out_channels for name, layer in gated.cost.gates.items() if ":" not in name}
    with gates_by(gated, {name: OpenGates(count) for name, count in channels.items()}):
        yield


def largest_difference(result: Any, expected: Any) -> float:
    """The largest difference between the tensors of two structures, relative to the largest number in ``expected``."""
    pairs = list(zip(tensors_in(result), tensors_in(expected), strict=True))
    pairs = [(a, b) for a, b in pairs if (b.is_floating_point() or b.is_complex()) and b.numel()]
    scale = max((float(b.abs().max()) for _, b in pairs), default=0.0)
    gap = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
    return gap / max(scale, 1e-30)


@torch.no_grad()
def check_unchanged(gated: GatedNetwork, example: Any, expected: Any) -> None:
    """Runs the gated network with all gates open; an error if a gate did not run or the output is different.

    ``example`` is the example input, ``expected`` the output of the original network for it.
    """
    with evaluating(gated), all_open(gated):
        with record(gated) as gates:
            try:
                result = call_with(gated, example)
            except Exception as error:
                raise SanpError(
                    f"{type(gated.net).__name__} does not run once it is gated ({type(error).__name__}: {error}): its "
                    "forward asks its modules for more than to be called; name those modules in skip"
                ) from error
        if gates.keys() != gated.cost.gates.keys():
            missing = sorted(gated.cost.gates.keys() - gates.keys()) or sorted(gates.keys() - gated.cost.gates.keys())
            raise SanpError(
                f"{missing[0]} of {type(gated.net).__name__} does not run as it did before it was gated "
                f"({len(missing)} in all): its forward asks what its modules are; name them in skip"
            )
        if largest_difference(result, expected) <= GATING_TOLERANCE:
            return
        again = call_with(gated, example)
    # If not, the network uses random numbers in evaluation too, and nothing can be compared.
    if largest_difference(again, result) <= GATING_TOLERANCE:
        raise SanpError(
            f"{type(gated.net).__name__} computes something else once it is gated, with all gates open: its forward "
            "asks what its modules are, or reads their parameters; name those modules in skip"
        )
