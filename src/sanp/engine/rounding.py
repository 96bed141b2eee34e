"""How much of a difference is rounding: a network in double precision, with decisions that were made before.

Some networks make much of small differences: torch's own result is then further from the exact one than a share of
1e-4. A compiled network may be a few times as far from it as torch is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sanp.core.copying import copy_of
from sanp.core.modules import call_with, evaluating, tensors_in
from sanp.spm.gated_conv import GatedConv
from sanp.spm.module import SPM
from sanp.spm.recording import Gates, record
from sanp.tracing.topology import module_path

ROUNDING = 5.0
"""how many times torch's own rounding error the engine's may be, in a network that makes much of small differences"""


class GivenGates(nn.Module):
    """In place of an SPM: its saliencies, but decisions that were made before, one for each call in a forward."""

    def __init__(self, spm: SPM, decisions: list[Tensor]) -> None:
        super().__init__()
        self.spm, self.decisions = spm, decisions
        self.calls = 0

    def forward(self, x: Tensor) -> Gates:  # (N, C_in, ...)
        """What the SPM would say, with the given decision."""
        decision = self.decisions[self.calls]
        self.calls += 1
        gates: Gates = self.spm(x)
        return gates.deciding(decision)


@torch.no_grad()
def run_given(
    network: nn.Module, batch: Any, decisions: Mapping[str, Tensor], layers: Sequence[str] = ()
) -> list[Tensor]:
    """What the network puts out in torch with these decisions, and the scores of these layers.

    ``decisions`` has (N, C_out) for each gated layer by name, as ``sanp.record`` gives them.
    """
    spms = {module.name: module.spm for module in network.modules() if isinstance(module, GatedConv)}
    with _given(network, decisions), record(network) as gates, evaluating(network):
        outputs = tensors_in(call_with(network, batch))
    return [*outputs, *(spms[module_path(layer)].score(gates[layer]) for layer in layers)]


def run_exactly(
    network: nn.Module, batch: Any, decisions: Mapping[str, Tensor], layers: Sequence[str] = ()
) -> list[Tensor]:
    """The same in double precision, by a copy of the network."""
    return run_given(copy_of(network).double(), tree_map(_double, batch), decisions, layers)


def largest_gap(given: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of two lists of tensors, each as a share of its own largest number.

    Infinite where shapes differ, or a number is not finite in one of them alone.
    """
    gap = 0.0
    for a, b in zip(given, expected, strict=True):
        if a.shape != b.shape or not torch.equal(a.isfinite(), b.isfinite()):
            return math.inf
        finite = b.isfinite()
        a, b = (part[finite] if part.is_complex() else part[finite].double() for part in (a, b))
        if b.numel():
            gap = max(gap, float((a - b).abs().max()) / max(float(b.abs().max()), 1e-30))
    return gap


@contextmanager
def _given(network: nn.Module, decisions: Mapping[str, Tensor]) -> Iterator[None]:
    layers = [module for module in network.modules() if isinstance(module, GatedConv)]
    originals = [layer.spm for layer in layers]
    for layer, spm in zip(layers, originals, strict=True):
        own = [each for key, each in decisions.items() if module_path(key) == layer.name]
        layer.spm = GivenGates(spm, own)  # type: ignore[assignment]
    try:
        yield
    finally:
        for layer, spm in zip(layers, originals, strict=True):
            layer.spm = spm


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf
