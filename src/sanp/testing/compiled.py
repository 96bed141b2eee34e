"""A check that the engine tells the truth: with given decisions, a compiled network computes what the network does."""

import warnings
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sanp.core.errors import SlowWarning
from sanp.core.modules import tensors_in
from sanp.engine.agreement import TOLERANCE
from sanp.engine.compiling import compile
from sanp.gating.network import GatedNetwork
from sanp.gating.verify import gates_by, largest_difference
from sanp.spm.gated_conv import GatedConv
from sanp.spm.module import SPM
from sanp.spm.recording import Gates
from sanp.testing.case import Case, NotApplicable, require, run
from sanp.tracing.topology import module_path

DENSITIES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""shares of open channels that are tried; at 0 none is, which no SPM would decide"""


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
        return replace(gates, decision=decision, applied=decision)


def check_compiled(case: Case) -> None:
    """Every output of every sample agrees within 1e-4 of its scale, at every density of random gates."""
    chosen = case.chosen()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)
        fast = compile(chosen, case.batch, tune=False)
    if fast.plan.instruction_set == "none":
        raise NotApplicable(f"it runs in torch: {fast.plan.reasons()}")
    samples = len(tensors_in(case.batch)[0])
    for density in DENSITIES:
        decisions = {
            name: (torch.rand(samples, layer.out_channels, generator=case.generator) < density).float()
            for name, layer in chosen.cost.gates.items()
        }
        with gates_by(chosen, _given(chosen, decisions)):
            expected = tensors_in(run(chosen, case.batch))
        given, _ = fast.run_forced(case.batch, decisions)
        gap = largest_difference(tree_leaves(given), expected)
        require(gap <= TOLERANCE, f"with {density:.0%} of the gates open the engine differs by {gap:.2e} of its scale")


def _given(gated: GatedNetwork, decisions: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    layers: dict[str, GatedConv] = gated.layers
    return {
        name: GivenGates(layer.spm, [each for key, each in decisions.items() if module_path(key) == name])
        for name, layer in layers.items()
    }
