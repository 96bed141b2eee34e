"""Checks that gating tells the truth: the same output before training, the cost that is left, zeros where pruned."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sanp.gating.gating import MIXED_ROWS
from sanp.gating.network import GatedNetwork
from sanp.gating.verify import gates_by, largest_difference
from sanp.spm.gated_conv import GatedConv
from sanp.spm.recording import Gates, exact_decisions_of, record
from sanp.testing.case import SAME, Case, NotApplicable, ensure, fresh, run
from sanp.testing.nonzero_count import ConvCall, count, random_gates, randomize


def check_open_gates_change_nothing(case: Case) -> None:
    """Before training the gated network computes what the original does, and the original is as it was."""
    gap = largest_difference(run(case.gated, case.batch), case.expected)
    if gap > SAME and largest_difference(run(case.net, case.batch), case.expected) > SAME:
        raise NotApplicable("the network draws random numbers in evaluation")
    ensure(gap <= SAME, f"the gated output differs from the original's by {gap:.2e} of its size")
    ensure(not any(isinstance(module, GatedConv) for module in case.net.modules()), "the original was changed")


def check_cost_is_what_is_left(case: Case) -> None:
    """With random gates, the cost model says of each convolution and sample what counting non-zero channels gives."""
    gated = fresh(case.gated)
    randomize(gated.net, case.generator)
    calls, gates = _counted(gated, case, torch.float64)
    if not all(call.finite for call in calls):
        raise NotApplicable("with random weights, the network's features grow beyond the numbers there are")
    said = gated.cost.per_layer(exact_decisions_of(gates))
    if len(calls) > len(said):  # some read constants, as a positional encoding, which are no part of an image's cost
        again, _ = _counted(gated, case, torch.float64)
        calls = [call for call, other in zip(calls, again, strict=True) if call.total != other.total]
    ensure(len(calls) == len(said), f"{len(calls)} convolutions ran, the cost model knows {len(said)}")
    for (name, mine), call in zip(said.items(), calls, strict=True):
        layer, counted = gated.cost.topology.layer(name), call.flops()
        mine = mine.expand(max((len(gate.decision) for gate in gates.values()), default=len(counted)))
        if len(counted) != len(mine) or gated.skipped.get(name) == MIXED_ROWS:
            mine, counted = mine.sum()[None], counted.sum()[None]
        ensure(
            bool((mine >= counted - 0.5).all()), f"{name} is said to cost {mine.tolist()}, it costs {counted.tolist()}"
        )
        exact = bool(gated.cost.topology.unknown) or bool((mine <= counted + 0.5).all())
        ensure(exact, f"{name} ({layer.role}) is said to cost {mine.tolist()}, only {counted.tolist()} is left")


def _counted(gated: GatedNetwork, case: Case, dtype: torch.dtype) -> tuple[list[ConvCall], dict[str, Gates]]:
    """The convolutions and the gates of a forward with random gates and random inputs.

    It runs in single precision if the network cannot run in ``dtype``.
    """

    def noise(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        return torch.randn(leaf.shape, generator=case.generator).to(dtype)

    gated.to(dtype)
    batch = tree_map(noise, case.batch)
    with gates_by(gated, random_gates(gated, case.generator)), record(gated) as gates, count(gated) as calls:
        try:
            run(gated, batch)
        except RuntimeError:
            if dtype == torch.float32:
                raise
            return _counted(gated, case, torch.float32)
    return calls, dict(gates)


def check_pruned_channels_are_zero(case: Case) -> None:
    """A pruned channel is exactly zero for the samples that prune it."""
    chosen = case.chosen()
    found: dict[str, Tensor] = {}

    def keep(module: GatedConv, args: Any, out: Tensor) -> None:
        found.setdefault(module.name, out.flatten(2).clone())

    for layer in chosen.layers.values():
        if not layer.norm_outside:
            layer.register_forward_hook(keep)
    with record(chosen) as gates:
        run(chosen, case.batch)
    for name, features in found.items():
        closed = gates[name].decision == 0
        ensure(not bool(features[closed].any()), f"{name} puts out something where its gate is closed")
