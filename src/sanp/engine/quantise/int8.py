"""An int8 engine: ranges from images or from the network, and what it loses against fp32."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sanp.core.errors import LossWarning, SanpError
from sanp.core.int8_ranges import keep_ranges, kept_ranges
from sanp.core.modules import tensors_in
from sanp.engine.arguments import in_order
from sanp.engine.compiled import Engine
from sanp.engine.quantise.loss import Loss, joined_loss, loss_of
from sanp.engine.quantise.observing import LoweredStep, histograms
from sanp.engine.quantise.ranges import range_of
from sanp.tracing.graph import Value

FEWEST = 16
"""samples that ranges are found from"""
_COMPARED = 256
"""samples that int8 and fp32 are compared on"""
_TOGETHER = 32
"""samples that are compared in one call"""
Ranges = Mapping[str, float]
"""what the largest byte of a value stands for, by the value's name"""


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
    assemble: Callable[[Ranges], Engine]
    """makes the engine from the ranges"""


def int8_engine(given: Quantisation, calibration: Any) -> Engine:
    """The int8 engine, after ranges from ``calibration``, or those that the network keeps if that is None.

    Ranges that were found are kept with the network. A :class:`LossWarning` says if int8 changes more than it should.
    """
    if calibration is None:
        ranges = wanted_ranges(given.network)
        engine = given.assemble(ranges)
        losses = {"the example_input": loss_of(engine, given.reference, given.example)}
    else:
        samples = _checked(calibration, given)
        found = histograms(given.stages, given.inputs, tensors_in(samples))
        ranges = {name: range_of(histogram) for name, histogram in found.items()}
        engine = given.assemble(ranges)
        losses = {
            "the calibration images": _compared(engine, given, samples),
            "the example_input": loss_of(engine, given.reference, given.example),
        }
        keep_ranges(given.network, ranges)
    notes = tuple(f"int8 on {where}: {loss}" for where, loss in losses.items())
    engine.plan = replace(engine.plan, notes=notes)
    for where, loss in losses.items():
        if not loss.small:
            warnings.warn(
                f"int8 changes more than it should on {where}: {loss}. Calibrate on images as the network will see "
                'them, prepared in the same way; if it stays so, use precision="fp32"',
                LossWarning,
                stacklevel=4,
            )
    return engine


def wanted_ranges(network: nn.Module) -> Ranges:
    """The ranges that a network keeps; an error without any."""
    kept = kept_ranges(network)
    if kept is None:
        raise SanpError(
            'precision="int8" wants calibration=images: some hundred training images, prepared as for the network; '
            "this network keeps no ranges of an earlier calibration"
        )
    return kept


def range_for(ranges: Ranges, name: str) -> float:
    """The range of a value by its name; an error if the ranges are those of another network."""
    if name not in ranges:
        raise SanpError(
            f"the ranges that this network keeps have none for {name}: they are those of another network; give "
            "calibration=images again"
        )
    return ranges[name]


def _checked(calibration: Any, given: Quantisation) -> Any:
    """The samples in the order of the network's arguments; an error if they are not like the example."""
    samples = in_order(given.reference, calibration)
    tensors, like = tensors_in(samples), tensors_in(given.example)
    if not tensors or len(tensors) != len(like):
        raise SanpError(
            f"calibration holds {len(tensors)} tensors and example_input {len(like)}: give samples as the network "
            "takes them"
        )
    for tensor, wanted in zip(tensors, like, strict=True):
        if tensor.dim() != wanted.dim() or tensor.shape[1:] != wanted.shape[1:] or tensor.dtype != wanted.dtype:
            raise SanpError(
                f"calibration has samples of shape {tuple(tensor.shape[1:])} and {tensor.dtype}: wanted is "
                f"{tuple(wanted.shape[1:])} and {wanted.dtype}, as in example_input"
            )
        if len(tensor) < FEWEST or len(tensor) != len(tensors[0]):
            raise SanpError(
                f"calibration has {len(tensor)} samples: ranges want at least {FEWEST}; some hundred training images "
                "are usual"
            )
        if not bool(tensor.isfinite().all()):
            raise SanpError("calibration holds numbers that are NaN or infinite: leave those samples out")
    if all(float((tensor - tensor[:1]).abs().max()) == 0 for tensor in tensors):
        raise SanpError("calibration holds the same sample many times: ranges want different ones")
    return samples


def _compared(engine: Engine, given: Quantisation, samples: Any) -> Loss:
    count = min(_COMPARED, len(tensors_in(samples)[0]))

    def part(first: int) -> Any:
        return tree_map(lambda leaf: leaf[first : first + _TOGETHER] if isinstance(leaf, Tensor) else leaf, samples)

    with torch.no_grad():
        return joined_loss([loss_of(engine, given.reference, part(first)) for first in range(0, count, _TOGETHER)])
