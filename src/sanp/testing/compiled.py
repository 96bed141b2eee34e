"""A check that the engine tells the truth: with given decisions, a compiled network computes what the network does."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from sanp.core.errors import SlowWarning
from sanp.core.modules import tensors_in
from sanp.engine.agreement import TOLERANCE
from sanp.engine.compiling import compile
from sanp.gating.network import GatedNetwork
from sanp.gating.verify import gates_by
from sanp.spm.gated_conv import GatedConv
from sanp.spm.module import SPM
from sanp.spm.recording import Gates, record
from sanp.spm.saliency import PredictedSaliency
from sanp.testing.case import Case, NotApplicable, ensure, fresh, run
from sanp.tracing.topology import module_path

DENSITIES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""shares of open channels that are tried; at 0 none is, which no SPM would decide"""

SPREAD = 0.1
"""how far the saliencies of one channel lie from a constant, which is about 1"""
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
    """Outputs and scores of every sample agree within 1e-4 of their scale, at every density of random gates."""
    chosen = case.chosen()
    make_scores_differ(chosen, case.batch, case.generator)
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
        outputs, scores = fast.run_forced(case.batch, decisions)
        given = [*tree_leaves(outputs), *scores.values()]
        expected = _in_torch(chosen, case.batch, decisions, list(scores))
        if not all(bool(each.isfinite().all()) for each in expected):
            continue  # an untrained network whose features grow beyond all bounds, which torch computes again
        gap = largest_gap(given, expected)
        if gap > TOLERANCE:
            exact = _in_torch(fresh(chosen).double(), tree_map(_double, case.batch), decisions, list(scores))
            own, gap = largest_gap(expected, exact), largest_gap(given, exact)
            said = (
                f"with {density:.0%} of the gates open the engine differs by {gap:.2e} of its scale, torch by {own:.2e}"
            )
            ensure(gap <= max(TOLERANCE, ROUNDING * own), said)
        case.difference = max(gap, case.difference or 0.0)
    if case.difference is None:
        raise NotApplicable("its own outputs are NaN or infinite, so that nothing can be compared")


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


@torch.no_grad()
def make_scores_differ(gated: GatedNetwork, batch: Any, generator: torch.Generator) -> None:
    """Lets saliencies that are constants depend on the image too, by at most SPREAD, as a forward reaches them.

    All gates are open meanwhile. A saliency that hardly varies stays so: it would vary with rounding errors.
    """

    def look(spm: SPM, args: tuple[Tensor]) -> None:
        saliency = spm.saliency
        if not isinstance(saliency, PredictedSaliency) or bool(saliency.w2.weight.any()):
            return
        constant = saliency(args[0])
        for linear in (saliency.w1, saliency.w2):
            random = torch.randn(linear.weight.shape, generator=generator) / linear.in_features**0.5
            linear.weight.copy_(random)
        spread = float((saliency(args[0]) - constant).abs().max())
        saliency.w2.weight.mul_(min(1.0, SPREAD / spread) if 0 < spread < math.inf else 0.0)

    hooks = [layer.spm.register_forward_pre_hook(look) for layer in gated.layers.values()]
    thresholds = {layer.spm: layer.spm.threshold.clone() for layer in gated.layers.values()}
    for spm in thresholds:
        spm.threshold.fill_(-1e9)
    run(gated, batch)
    for spm, threshold in thresholds.items():
        spm.threshold.copy_(threshold)
    for hook in hooks:
        hook.remove()


def _in_torch(
    gated: GatedNetwork, batch: Any, decisions: Mapping[str, Tensor], layers: Sequence[str] = ()
) -> list[Tensor]:
    """What the network puts out with these decisions, and the scores of these layers."""
    spms = {name: layer.spm for name, layer in gated.layers.items()}
    with gates_by(gated, _given(gated, decisions)), record(gated) as gates:
        outputs = tensors_in(run(gated, batch))
    return [*outputs, *(spms[module_path(layer)].score(gates[layer]) for layer in layers)]


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _given(gated: GatedNetwork, decisions: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    layers: dict[str, GatedConv] = gated.layers
    return {
        name: GivenGates(layer.spm, [each for key, each in decisions.items() if module_path(key) == name])
        for name, layer in layers.items()
    }
