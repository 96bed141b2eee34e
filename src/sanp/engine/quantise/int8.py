"""An int8 engine: ranges from images or from the network, and what it loses against fp32."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sanp.core.errors import LossWarning, SanpError
from sanp.core.int8_calibration import Int8Calibration, Range, keep_calibration, kept_calibration
from sanp.core.modules import tensors_in
from sanp.engine.compiled import Engine
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.quantise.layer_errors import MOST_LAYER_ERROR, layer_errors, refusals
from sanp.engine.quantise.loss import Loss, joined_loss, loss_of
from sanp.engine.quantise.observing import LoweredStep, histograms
from sanp.engine.quantise.ranges import range_of
from sanp.engine.quantise.samples import samples_of
from sanp.engine.quantise.stable_names import conv_names, value_names
from sanp.tracing.graph import Value

_COMPARED = 256
"""samples that int8 and fp32 are compared on"""
_TOGETHER = 32
"""samples that are compared in one call"""
_FEW = 0.25
"""the share of the convolutions that may stay in fp32 because the whole network loses too much"""
_MANY = 0.5
"""if more of them stay in fp32 because of what int8 changes, that is told"""


@dataclass(frozen=True)
class Quantisation:
    """What makes an int8 engine of a network."""

    network: nn.Module
    """the network that the user gave, which keeps its ranges"""
    reference: nn.Module
    """its copy in fp32, which the engine is compared with"""
    example: Any
    stages: Sequence[LoweredStep]
    """of its fp32 engine"""
    inputs: Sequence[Value]
    assemble: Callable[[Int8Calibration], Engine]
    """makes the engine"""


def int8_engine(given: Quantisation, calibration: Any) -> Engine:
    """The int8 engine, after ``calibration``, or with what the network keeps of an earlier one if that is None.

    What was found is kept with the network. A :class:`LossWarning` says if int8 changes more than it should.
    """
    losses: dict[str, Loss] = {}
    if calibration is None:
        engine = given.assemble(wanted_calibration(given.network))
    else:
        samples = samples_of(calibration, given.reference, given.example)
        engine, found, losses["the calibration images"] = _calibrated(given, samples)
        keep_calibration(given.network, found)
        if len(found.fp32) > _MANY * max(1, len(found.errors)):
            _warn(f"int8 changes too much: {len(found.fp32)} of {len(found.errors)} convolutions stay in fp32")
    losses["the example_input"] = loss_of(engine, given.reference, given.example)
    notes = tuple(f"int8 on {where}: {loss}" for where, loss in losses.items())
    engine.plan = replace(engine.plan, notes=notes)
    for where, loss in losses.items():
        if not loss.small:
            _warn(f"int8 changes more than it should on {where}: {loss}")
    return engine


def _warn(what: str) -> None:
    warnings.warn(
        f"{what}. Calibrate on images as the network will see them, prepared in the same way; if it stays so, use "
        'precision="fp32"',
        LossWarning,
        stacklevel=5,
    )


def _calibrated(given: Quantisation, samples: Any) -> tuple[Engine, Int8Calibration, Loss]:
    """The engine of these samples, what was found on them, and what the engine changes on them.

    A layer stays in fp32 if int8 changes its own output too much. If it changes the whole network too much all the
    same, so do the layers with the largest changes: twice as many each time, up to a quarter, if that is enough.
    """
    tensors = tensors_in(samples)
    seen = histograms(given.stages, given.inputs, tensors)
    ranges = {name: range_of(histogram) for name, histogram in seen.items()}
    errors = layer_errors(given.stages, given.inputs, tensors, ranges)
    order = sorted(errors, key=lambda name: -errors[name])
    large = sum(error > MOST_LAYER_ERROR for error in errors.values())

    def attempt(taken: int) -> tuple[Engine, Int8Calibration, Loss]:
        found = Int8Calibration(ranges, errors, tuple(order[:taken]))
        engine = given.assemble(found)
        return engine, found, _compared(engine, given, samples)

    best = first = attempt(large)
    more = 1
    while not best[2].small and large + more <= len(order) and more <= max(1, int(_FEW * len(order))):
        best, more = attempt(large + more), 2 * more
    return best if best[2].small else first


def wanted_calibration(network: nn.Module) -> Int8Calibration:
    """What a network keeps of its calibration; an error without any."""
    kept = kept_calibration(network)
    if kept is None:
        raise SanpError(
            'precision="int8" wants calibration=images: some hundred training images, prepared as for the network; '
            "this network keeps no ranges of an earlier calibration"
        )
    return kept


QuantisedStep = tuple[Mapping[int, Range], Mapping[int, str]]
"""the ranges of a step's values, and its convolutions that stay in fp32 with the reason"""


def quantised_steps(lowerings: Sequence[Lowering | None], kept: Int8Calibration | None) -> list[QuantisedStep | None]:
    """How each step is written on bytes; None for all of them without a calibration."""
    if kept is None:
        return [None] * len(lowerings)
    named = zip(value_names(lowerings), conv_names(lowerings), strict=True)
    return [({v: _range_for(kept, name) for v, name in of.items()}, refusals(kept, convs)) for of, convs in named]


def _range_for(kept: Int8Calibration, name: str) -> Range:
    """The range of a value by its name; an error if the ranges are those of another network."""
    if name not in kept.ranges:
        raise SanpError(
            f"the ranges that this network keeps have none for {name}: they are those of another network; give "
            "calibration=images again"
        )
    return kept.ranges[name]


def _compared(engine: Engine, given: Quantisation, samples: Any) -> Loss:
    count = min(_COMPARED, len(tensors_in(samples)[0]))

    def part(first: int) -> Any:
        return tree_map(lambda leaf: leaf[first : first + _TOGETHER] if isinstance(leaf, Tensor) else leaf, samples)

    with torch.no_grad():
        return joined_loss([loss_of(engine, given.reference, part(first)) for first in range(0, count, _TOGETHER)])
