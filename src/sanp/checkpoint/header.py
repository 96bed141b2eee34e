"""The header of a network's file: what it says, how it is read and checked, and how gates are restored from it."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from sanp.core.checks import as_number
from sanp.core.errors import SanpError, shown
from sanp.core.files import read_tensor_file
from sanp.core.int8_calibration import Int8Calibration, read_calibration
from sanp.core.limits import LONGEST_LABEL, MOST_DIMENSIONS, MOST_INPUTS, MOST_SKIPPED
from sanp.core.zero_packing import Packing, checked_packings
from sanp.gating.amount import Amount, parse_budget
from sanp.gating.cap import read_cap
from sanp.gating.dial import read_dial
from sanp.gating.network import GatedNetwork, Origin
from sanp.gating.trained_budgets import TrainedBudgets
from sanp.spm.module import OLDER_SETTINGS, SPMConfig

NETWORK_FORMAT = 1
"""version of the header"""
NETWORK_KEY = "sanp"
"""the field of a safetensors file that holds the header"""


@dataclass(frozen=True)
class Header:
    """The header of a file."""

    network: str
    """name of the network's class"""
    gates: dict[str, Any] | None
    """how a gated network was gated, and its thresholds; None for other networks"""
    form: dict[str, Any] | None
    """the form of a network that is cut, sparse or gated by pixel; None for other networks"""
    int8: Int8Calibration | None = None
    """what a network keeps that was calibrated for int8"""
    packed: Mapping[str, Packing] = field(default_factory=dict)
    """the tensors whose rows and columns of zeros were not written, by name"""


def read_network_file(path: str | os.PathLike[str]) -> tuple[Header, dict[str, Tensor]]:
    """The header and the tensors of the file ``path``; an error if it is damaged or not from :func:`save`."""
    if not Path(path).is_file():
        raise SanpError(f"{path} is not a file: give a .safetensors file that sanp.save wrote")
    try:
        metadata, tensors = read_tensor_file(Path(path))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise SanpError(
            f"{path} is truncated or not a safetensors file ({error}): save it again with sanp.save"
        ) from error
    if NETWORK_KEY not in metadata:
        raise SanpError(f"{path} has no field {NETWORK_KEY!r} in its header: it was not written by sanp.save")
    try:
        header = json.loads(metadata[NETWORK_KEY])
        version, network, gates, form = header["format"], header["network"], header["gates"], header.get("form")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SanpError(
            f"{path}: the header's field {NETWORK_KEY!r} is damaged ({type(error).__name__}: {error})"
        ) from error
    if version != NETWORK_FORMAT:
        raise SanpError(
            f"{path} has format {shown(version)}, this sanp reads {NETWORK_FORMAT}: install the sanp that wrote it"
        )
    if not isinstance(network, str) or not isinstance(gates, dict | None) or not isinstance(form, dict | None):
        raise SanpError(f"{path}: the header's network, gates or form field is damaged")
    try:
        calibration = read_calibration(header.get("int8"))
        packings = checked_packings(header.get("packed"))
    except SanpError as error:
        raise SanpError(f"{path}: the header is damaged: {error}") from error
    return Header(network, gates, form, calibration, packings), tensors


def gates_header(gated: GatedNetwork) -> dict[str, Any]:
    """The field ``gates`` of the header: how the network was gated, its thresholds and its budgets."""
    origin = gated.origin
    return {
        "method": origin.method,
        "spm": asdict(origin.spm),
        "skip": list(origin.skip),
        "shortcuts": origin.shortcuts,
        "input_shapes": [list(shape) for shape in origin.input_shapes],
        "input_keys": None if origin.input_keys is None else list(origin.input_keys),
        "thresholds": {name: layer.spm.threshold.item() for name, layer in gated.layers.items()},
        "budget": None if gated.budget is None else asdict(gated.budget),
        "trained": None if gated.trained is None else asdict(gated.trained),
        "dial": None if gated.dial is None else asdict(gated.dial),
        "cap": None if gated.cap is None else gated.cap.as_dict(),
    }


def origin_of(gates: dict[str, Any], path: Any) -> Origin:
    """How a network was gated, from the field ``gates`` of its header; ``path`` names the file in an error."""
    try:
        known = {each.name for each in fields(SPMConfig)}
        unknown = set(gates["spm"]) - known
        if unknown:
            raise SanpError(f"spm has unknown settings {', '.join(sorted(unknown))}")
        shapes = shapes_of(gates["input_shapes"])
        keys = None if gates["input_keys"] is None else tuple(map(str, gates["input_keys"]))
        if keys is not None and shapes and len(keys) != len(shapes):
            raise SanpError(f"{path}: the header has {len(keys)} input_keys for {len(shapes)} input_shapes")
        skip = tuple(map(str, gates["skip"]))
        if len(skip) > MOST_SKIPPED or any(len(name) > LONGEST_LABEL for name in skip):
            raise SanpError(f"skip has more than {MOST_SKIPPED} names, or one of over {LONGEST_LABEL} letters")
        spm = SPMConfig(**{**OLDER_SETTINGS, **gates["spm"]})
        return Origin(spm, skip, bool(gates["shortcuts"]), shapes, keys, str(gates["method"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SanpError(f"{path}: the header's gates are damaged ({type(error).__name__}: {error})") from error


def shapes_of(given: Any) -> tuple[tuple[int, ...], ...]:
    """The shapes of inputs as a header has them; an error if there are too many, or one is none."""
    if len(given) > MOST_INPUTS or any(len(shape) > MOST_DIMENSIONS for shape in given):
        raise SanpError(f"input_shapes has more than {MOST_INPUTS} inputs, or one of over {MOST_DIMENSIONS} dimensions")
    return tuple(tuple(map(_size_of, shape)) for shape in given)


def _size_of(size: object) -> int:
    """A number of ``input_shapes``; an error if it is not a whole number above 0."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise SanpError(f"{shown(size)} in input_shapes is not a size")
    return size


def _trained(gated: GatedNetwork, gates: dict[str, Any]) -> TrainedBudgets | None:
    """What a network was trained for; files of older versions only have its budget."""
    if "trained" not in gates:
        if gated.dial is not None:
            return TrainedBudgets(gated.dial.low, gated.dial.high)
        kept = None if gated.budget is None or gated.budget.unit == "ms" else gated.kept_for(gated.budget)
        return None if kept is None else TrainedBudgets(kept, kept)
    found = gates["trained"]
    return None if found is None else TrainedBudgets(as_number(found["low"]), as_number(found["high"]))


def restore_gates(gated: GatedNetwork, gates: dict[str, Any], path: Any) -> None:
    """Sets the thresholds and budgets of a network to those in the field ``gates`` of its header.

    ``path`` names the file in an error.
    """
    try:
        for name, layer in gated.layers.items():
            threshold = torch.tensor(as_number(gates["thresholds"][name]), dtype=layer.spm.threshold.dtype)
            if not bool(torch.isfinite(threshold)):
                raise ValueError(f"the threshold of {name} is {shown(gates['thresholds'][name])}")
            layer.spm.threshold.copy_(threshold)
        gated.budget = None if gates["budget"] is None else parse_budget(Amount(**gates["budget"]))
        gated.dial = None if gates.get("dial") is None else read_dial(gates["dial"])
        gated.trained = _trained(gated, gates)
        gated.cap = None if gates.get("cap") is None else read_cap(gated, gates["cap"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        raise SanpError(
            f"{path}: the header's thresholds or budget are damaged ({type(error).__name__}: {error})"
        ) from error
