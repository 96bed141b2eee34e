"""Whether a compiled or exported network gives what the network gives, up to rounding.

Rounding may turn a decision whose score lies at its threshold. So a compiled network is run with the network's own
decisions, and then every sample must agree; its scores must agree with the network's, layer by layer. An exported file
decides by itself: there, samples with such a score are excused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from sanp.core.modules import call_with, tensors_in
from sanp.engine.rounding import ROUNDING, largest_gap, run_exactly, run_given
from sanp.spm.gated_conv import spms_of
from sanp.spm.module import SPM
from sanp.spm.recording import Gates, decisions_of, record
from sanp.tracing.topology import module_path

if TYPE_CHECKING:
    from sanp.engine.compiled import Engine

TOLERANCE = 1e-4
"""the largest difference that counts as rounding, as a share of the largest output"""
_TIE = 1e-4
"""how far from its threshold a score may be decided either way by rounding, as a share of the layer's largest score"""
_MOST = 1e-2
"""the largest difference that is accepted where torch rounds so badly itself, as a share of the largest output"""
NOTHING_TO_COMPARE = "the network's own outputs are NaN or infinite, so that nothing can be compared"


@contextmanager
def near_ties(network: nn.Module) -> Iterator[list[Tensor]]:
    """Collects a tensor (N,) from each SPM that runs inside: which samples have a decision that rounding could turn."""
    found: list[Tensor] = []

    def look(spm: SPM, _: Any, gates: Gates) -> None:
        score = spm.score(gates)
        found.append(spm.binarize.margin(score) < _TIE * score.abs().amax().clamp(min=1e-30))

    hooks = [spm.register_forward_hook(look) for spm in network.modules() if type(spm) is SPM]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def check_batches(example: Any) -> list[Any]:
    """Batches of 3, 1 and 5 samples like those of the example, all of them different.

    A compiled network that kept the size of the traced batch, or one of its samples, differs on one of them.
    """
    return [varied_batch(example, size) for size in (3, 1, 5)]


def varied_batch(example: Any, size: int) -> Any:
    """A batch of so many samples: those of the example, and variations of them where it has too few."""

    def batch(tensor: Tensor) -> Tensor:
        samples = tensor.detach()[:size]
        more = [_varied(samples[place % len(samples)], place) for place in range(size - len(samples))]
        chosen = torch.cat([samples, torch.stack(more)]) if more else samples.clone()
        return chosen.contiguous()

    return tree_map(lambda leaf: batch(leaf) if isinstance(leaf, Tensor) else leaf, example)


def _varied(sample: Tensor, number: int) -> Tensor:
    """The ``number``-th variation of a sample: floats with noise, whole numbers in another order."""
    if not sample.is_floating_point():
        return sample.roll(number + 1, -1) if sample.dim() else sample.clone()
    noise = torch.randn(sample.shape, generator=torch.Generator().manual_seed(number), dtype=torch.float32)
    spread = float(sample.float().std()) if sample.numel() > 1 else 0.0
    return sample + (0.5 * (spread if 0 < spread < float("inf") else 1.0) * noise).to(sample.dtype)


def agree(given: Sequence[Any], expected: Sequence[Any], ties: Sequence[Tensor], samples: int) -> bool:
    """Whether the leaves of two outputs are the same: shapes, dtypes, and the numbers of every sample without a tie.

    ``ties`` is what :func:`near_ties` collected on the way to ``expected``; ``samples`` is the size of the batch.
    """
    if len(given) != len(expected):
        return False
    excused = torch.stack([tie for tie in ties if len(tie) == samples] or [torch.zeros(samples).bool()]).any(0)
    return all(_same(a, b, excused) for a, b in zip(given, expected, strict=True))


def disagreement(
    engine: "Engine",
    network: nn.Module,
    batch: Any,
    known: tuple[list[Any], Mapping[str, Gates]] | None = None,
    *,
    alone: int | None = None,
) -> str | None:
    """What a compiled network gets wrong on a batch, in words; None if all is right.

    It is :data:`NOTHING_TO_COMPARE` where the network's own output is not finite for any sample: torch computes such
    samples. ``network`` is what it was compiled from, ``batch`` an example as :func:`sanp.compile` takes it. ``known``
    is what the network gives for the batch, the leaves of its output and the gates, where that is known. With the
    network's decisions the engine runs on the whole batch; with its own it runs on the first ``alone`` samples, as a
    batch of that size, or on all of them where that is not given or an output has other rows than the samples.
    """
    expected, gates = known if known is not None else _of(network, batch)
    broken = _not_finite(expected, len(tensors_in(batch)[0]))
    samples = len(broken)
    by_sample = all(leaf.dim() and len(leaf) == samples for leaf in expected if isinstance(leaf, Tensor))
    alone = alone if alone is not None and by_sample else samples

    def first(tree: Any) -> Any:
        return tree if alone == samples else _first_rows(tree, alone, samples)

    itself = tree_leaves(call_with(engine, first(batch)))
    if bool(broken.all()):
        same = agree(itself, first(expected), [], alone)
        return NOTHING_TO_COMPARE if same else "samples that are not finite differ"
    given, scores = engine.run_forced(batch, decisions_of(gates))
    spms = spms_of(network)
    wanted = {layer: spms[module_path(layer)].score(gates[layer]) for layer in scores}
    same = agree(given, [leaf for leaf in expected if isinstance(leaf, Tensor)], [broken], samples)
    why = None if same else "the native result differs from torch's"
    turned = broken
    for layer, score in scores.items():
        spm = spms[module_path(layer)]
        rows = ~broken if len(score) == samples else torch.ones(len(score), dtype=torch.bool)
        scale = max(float(wanted[layer][rows].abs().max()), 1e-30)
        if not float((score - wanted[layer])[rows].abs().max()) <= _TIE * scale:  # NaN is no agreement
            why = why or f"the native scores of {layer} differ from torch's"
        other = (spm.binarize.decide(score) != spm.binarize.decide(wanted[layer])).any(1)
        turned = turned | (other if len(other) == samples else other.any())
    if why and not (_is_rounding(network, batch, gates, expected, given, wanted, scores) and not bool(broken.any())):
        return why
    if not agree(itself, first(expected), [~broken[:alone]], alone):
        return "samples that are not finite differ, or what is no tensor"
    itself = [leaf for leaf in itself if isinstance(leaf, Tensor)]
    same = agree(itself, first(given), [turned[:alone]], alone)
    return None if same else "the engine differs from itself"


def disagreement_when_open(engine: "Engine", network: nn.Module, batch: Any, gates: Mapping[str, Gates]) -> str | None:
    """What a compiled network gets wrong on a batch with every channel open, in words; None if all is right.

    The network's own decisions, which ``gates`` has for the batch, may leave channels closed for all samples of a few
    batches, and another sample opens them. Where features then grow beyond all bounds nothing is compared.
    """
    decided = decisions_of(gates)
    if all(bool(decision.all()) for decision in decided.values()):
        return None
    opened = {layer: torch.ones_like(decision) for layer, decision in decided.items()}
    outputs, scores = engine.run_forced(batch, opened)
    if scores.keys() != opened.keys():  # a gate that waits for a batch norm outside its module decides by itself
        return None
    given = _floats([*outputs, *scores.values()])
    expected = _floats(run_given(network, batch, opened, list(scores)))
    if not all(bool(each.isfinite().all()) for each in expected) or largest_gap(given, expected) <= TOLERANCE:
        return None
    try:
        exact = _floats(run_exactly(network, batch, opened, list(scores)))
    except Exception:  # a network may refuse double precision in any way
        exact = expected
    is_rounding = largest_gap(given, exact) <= min(ROUNDING * largest_gap(expected, exact), _MOST)
    return None if is_rounding else "the native result differs from torch's with all gates open"


def _floats(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def _is_rounding(
    network: nn.Module,
    batch: Any,
    gates: Mapping[str, Gates],
    expected: Sequence[Any],
    given: Sequence[Any],
    wanted: Mapping[str, Tensor],
    scores: Mapping[str, Tensor],
) -> bool:
    """Whether a compiled network is hardly further from the exact result than torch is.

    ``expected`` and ``wanted`` are outputs and scores of the network, ``given`` and ``scores`` those of the engine.
    """
    try:
        exact = run_exactly(network, batch, decisions_of(gates), list(scores))
    except Exception:  # a network may refuse double precision in any way
        return False
    own = largest_gap([*tensors_in(expected), *wanted.values()], exact)
    gap = largest_gap([*tensors_in(given), *scores.values()], exact)
    return gap <= min(ROUNDING * own, _MOST)


def _first_rows(tree: Any, count: int, samples: int) -> Any:
    """The tensors of a structure, of each that has a row for each of the ``samples`` its first ``count`` rows."""

    def rows(leaf: Any) -> Any:
        return leaf[:count] if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == samples else leaf

    return tree_map(rows, tree)


def _of(network: nn.Module, batch: Any) -> tuple[list[Any], Mapping[str, Gates]]:
    with torch.no_grad(), record(network) as gates:
        return tree_leaves(call_with(network, batch)), gates


def _not_finite(leaves: Sequence[Any], samples: int) -> Tensor:
    """(N,): the samples with NaN or infinity in an output; all of them if an output has no row for each sample."""
    broken = torch.zeros(samples, dtype=torch.bool)
    for leaf in tensors_in(leaves):
        if leaf.is_floating_point() and not bool(leaf.isfinite().all()):
            by_sample = leaf.dim() > 0 and len(leaf) == samples
            broken |= ~leaf.isfinite().reshape(samples, -1).all(1) if by_sample else True
    return broken


def _same(given: Any, expected: Any, excused: Tensor) -> bool:
    if not isinstance(expected, Tensor):
        return bool(given == expected)
    if not isinstance(given, Tensor) or given.shape != expected.shape or given.dtype != expected.dtype:
        return False
    if expected.is_floating_point():
        finite = expected.isfinite()
        scale = float(expected[finite].abs().max()) if bool(finite.any()) else 1.0
        close = torch.isclose(given, expected, rtol=0, atol=TOLERANCE * max(scale, 1e-30), equal_nan=True)
    else:
        close = given == expected
    if close.dim() == 0 or len(close) != len(
        excused
    ):  # no row for each sample: one that is excused may be in every number
        return bool(close.all()) or bool(excused.any())
    return bool((close.reshape(len(close), -1).all(1) | excused).all())
