"""The battery: every check on one network, and a report of what was found."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from sanp.gating.cost import dense_flops
from sanp.gating.network import GatedNetwork
from sanp.testing.case import Case, CheckError, NotApplicable
from sanp.testing.compiled import check_compiled
from sanp.testing.handling import (
    check_autocast,
    check_data_parallel,
    check_deepcopy,
    check_modes_and_moves,
    check_save_and_load,
    check_training_step,
)
from sanp.testing.truth import (
    check_cost_is_what_is_left,
    check_open_gates_change_nothing,
    check_pruned_channels_are_zero,
)


@dataclass(frozen=True, kw_only=True)
class NetworkReport:
    """What the battery found of a network that passed."""

    network: str
    convolutions: int
    """of one forward; a convolution that runs twice counts twice"""
    gated: int
    """convolutions with an SPM"""
    following: int
    """depthwise convolutions that share the gates of their input"""
    dense_flops: int
    """of one image with all channels computed"""
    gated_share: float
    """of the dense FLOPs: what the gated and following convolutions cost"""
    floor: float
    """of the dense FLOPs: the least that a forward can cost"""
    skipped: dict[str, str]
    """convolutions left dense, with the reason"""
    unknown: dict[str, int]
    """operators without a rule that gated channels met"""
    skipped_checks: dict[str, str]
    """checks that do not apply, with the reason"""
    native_share: float | None = None
    """of the FLOPs, what the engine runs natively; None if it was not compiled"""
    in_torch: str = ""
    """why the engine leaves some of it to torch"""
    difference: float | None = None
    """the engine's largest difference from torch, or from double precision where torch's own rounding is larger"""


CHECKS: tuple[Callable[[Case], None], ...] = (
    check_open_gates_change_nothing,
    check_cost_is_what_is_left,
    check_pruned_channels_are_zero,
    check_training_step,
    check_save_and_load,
    check_deepcopy,
    check_modes_and_moves,
    check_autocast,
    check_data_parallel,
    check_compiled,
)


def check_network(
    make_net: Callable[[], nn.Module], example_input: Any, *, checks: tuple[Callable[[Case], None], ...] = CHECKS
) -> NetworkReport:
    """Gates a network and runs ``checks`` on it, by default all.

    ``make_net`` builds the network, and ``example_input`` is what it takes, as for :func:`sanp.gate`. A check that
    fails raises a :class:`CheckError`, which says which check and why; one that does not apply is named in the report.
    """
    case = Case(make_net, example_input)
    skipped: dict[str, str] = {}
    for check in checks:
        try:
            check(case)
        except NotApplicable as reason:
            skipped[check.__name__] = str(reason)
        except Exception as error:
            what = str(error) if isinstance(error, CheckError) else f"{type(error).__name__}: {error}"
            raise CheckError(f"{check.__name__}: {what}") from error
    found = {"native_share": case.native_share, "in_torch": case.in_torch, "difference": case.difference}
    return replace(report_on(case.gated, skipped), **found)  # type: ignore[arg-type]


def report_on(gated: GatedNetwork, skipped_checks: dict[str, str]) -> NetworkReport:
    """The report on a gated network; ``skipped_checks`` are those that do not apply, with the reason."""
    layers = gated.cost.layers
    pruned = [layer for layer in layers if layer.role != "dense"]
    return NetworkReport(
        network=type(gated.net).__name__,
        convolutions=len(layers),
        gated=len(gated.cost.gates),
        following=len(pruned) - len(gated.cost.gates),
        dense_flops=gated.dense_flops,
        gated_share=sum(dense_flops(layer) for layer in pruned) / gated.dense_flops,
        floor=gated.cost.floor_flops / gated.dense_flops,
        skipped=dict(gated.skipped),
        unknown=dict(gated.cost.topology.unknown),
        skipped_checks=skipped_checks,
    )
