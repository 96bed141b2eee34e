"""A check that the engine tells the truth: with given decisions, a compiled network computes what the network does."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from sanp.core.errors import SlowWarning
from sanp.core.modules import tensors_in
from sanp.engine.agreement import TOLERANCE
from sanp.engine.compiling import compile
from sanp.gating.network import GatedNetwork
from sanp.gating.verify import gates_by, largest_difference
from sanp.spm.gated_conv import GatedConv
from sanp.spm.module import SPM
from sanp.spm.recording import Gates
from sanp.testing.case import Case, NotApplicable, ensure, fresh, run
from sanp.tracing.topology import module_path

DENSITIES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""shares of open channels that are tried; at 0 none is, which no SPM would decide"""

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


def check_compiled(case: Case) -> None:
    """Every output of every sample agrees within 1e-4 of its scale, at every density of random gates."""
    chosen = case.chosen()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)
        fast = compile(chosen, case.batch, tune=False)
    case.native_share, case.in_torch = fast.plan.native_share, fast.plan.reasons()
    if fast.plan.instruction_set == "none":
        raise NotApplicable(f"it runs in torch: {fast.plan.reasons()}")
    samples = len(tensors_in(case.batch)[0])
    for density in DENSITIES:
        decisions = {
            name: (torch.rand(samples, layer.out_channels, generator=case.generator) < density).float()
            for name, layer in chosen.cost.gates.items()
        }
        expected = _in_torch(chosen, case.batch, decisions)
        given, _ = fast.run_forced(case.batch, decisions)
        gap = largest_difference(tree_leaves(given), expected)
        if gap > TOLERANCE:
            exact = _in_torch(fresh(chosen).double(), tree_map(_double, case.batch), decisions)
            own, gap = largest_difference(expected, exact), largest_difference(tree_leaves(given), exact)
            said = (
                f"with {density:.0%} of the gates open the engine differs by {gap:.2e} of its scale, torch by {own:.2e}"
            )
            ensure(gap <= max(TOLERANCE, ROUNDING * own), said)
        case.difference = max(gap, case.difference or 0.0)


def _in_torch(gated: GatedNetwork, batch: Any, decisions: Mapping[str, Tensor]) -> list[Tensor]:
    """What the network puts out with these decisions."""
    with gates_by(gated, _given(gated, decisions)):
        return tensors_in(run(gated, batch))


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _given(gated: GatedNetwork, decisions: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    layers: dict[str, GatedConv] = gated.layers
    return {
        name: GivenGates(layer.spm, [each for key, each in decisions.items() if module_path(key) == name])
        for name, layer in layers.items()
    }
