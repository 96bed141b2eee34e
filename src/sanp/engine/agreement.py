"""Whether a twin of a network gives what the network gives: all but samples on the edge of a decision must agree."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sanp.binarize import TopK
from sanp.record import Gates
from sanp.spm import SPM

TOLERANCE = 1e-4
"""of the largest output"""
_TIE = 1e-4
"""of a layer's largest score: a decision closer than this to its threshold may fall either way by rounding"""


@contextmanager
def near_ties(network: nn.Module) -> Iterator[list[Tensor]]:
    """Collects, from each SPM that runs inside, which samples have a decision that rounding could turn (N,)."""
    found: list[Tensor] = []

    def look(spm: SPM, _: Any, gates: Gates) -> None:
        score = (gates.saliency - spm.threshold).reshape(len(gates.saliency), -1, spm.group).mean(2)  # (N, groups)
        found.append(_margin(spm, score) < _TIE * score.abs().amax().clamp(min=1e-30))

    hooks = [spm.register_forward_hook(look) for spm in network.modules() if type(spm) is SPM]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _margin(spm: SPM, score: Tensor) -> Tensor:
    """How far the closest score of each sample is from being decided otherwise (N,)."""
    if isinstance(spm.binarize, TopK):
        ranked, kept = score.sort(1, descending=True).values, int(spm.binarize(score)[0].sum())
        if kept >= score.shape[1]:
            return torch.full((len(score),), torch.inf)
        return ranked[:, kept - 1] - ranked[:, kept]
    open_ = (score > 0).any(1)
    best = score.topk(min(2, score.shape[1]), dim=1).values
    alone = torch.minimum(best[:, 0] - best[:, -1], best[:, 0].abs()) if best.shape[1] > 1 else best[:, 0].abs()
    return torch.where(open_, score.abs().amin(1), alone)  # with none open the largest is opened


def agree(given: Sequence[Tensor], expected: Sequence[Tensor], ties: Sequence[Tensor]) -> bool:
    """The same shapes, and the same numbers for every sample that has no near tie."""
    if len(given) != len(expected) or any(a.shape != b.shape for a, b in zip(given, expected, strict=True)):
        return False
    wrong = torch.stack([_differs(a, b) for a, b in zip(given, expected, strict=True)]).any(0)
    excused = torch.stack([tie for tie in ties if len(tie) == len(wrong)] or [torch.zeros_like(wrong)]).any(0)
    return not bool((wrong & ~excused).any())


def _differs(given: Tensor, expected: Tensor) -> Tensor:
    """Which samples are not the same within the tolerance."""
    finite = expected.isfinite()
    scale = float(expected[finite].abs().max()) if bool(finite.any()) else 1.0
    close = torch.isclose(given.float(), expected.float(), rtol=0, atol=TOLERANCE * max(scale, 1e-30), equal_nan=True)
    return ~close.flatten(1).all(1) if close.dim() > 1 else ~close
