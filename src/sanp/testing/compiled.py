"""A check that the engine tells the truth: with given decisions, a compiled network computes what the network does."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from sanp.core.errors import SlowWarning
from sanp.core.modules import tensors_in
from sanp.engine.agreement import TOLERANCE
from sanp.engine.compiling import compile
from sanp.engine.rounding import ROUNDING, largest_gap, run_exactly, run_given
from sanp.gating.network import GatedNetwork
from sanp.spm.module import SPM
from sanp.spm.saliency import PredictedSaliency
from sanp.testing.case import Case, NotApplicable, ensure, run

DENSITIES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""shares of open channels that are tried; at 0 none is, which no SPM would decide"""

SPREAD = 0.1
"""how far the saliencies of one channel lie from a constant, which is about 1"""


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
        expected = run_given(chosen, case.batch, decisions, list(scores))
        if not all(bool(each.isfinite().all()) for each in expected):
            continue  # an untrained network whose features grow beyond all bounds, which torch computes again
        gap = largest_gap(given, expected)
        if gap > TOLERANCE:
            exact = run_exactly(chosen, case.batch, decisions, list(scores))
            own, gap = largest_gap(expected, exact), largest_gap(given, exact)
            said = (
                f"with {density:.0%} of the gates open the engine differs by {gap:.2e} of its scale, torch by {own:.2e}"
            )
            ensure(gap <= max(TOLERANCE, ROUNDING * own), said)
        case.difference = max(gap, case.difference or 0.0)
    if case.difference is None:
        raise NotApplicable("its own outputs are NaN or infinite, so that nothing can be compared")


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
