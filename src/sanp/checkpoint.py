"""Saves and loads networks as safetensors files with a JSON header; nothing is ever unpickled.

The header says how the network was pruned, so that a fresh network can be prepared in the same way and filled with the
saved tensors. Files are written to a temporary file first and then renamed, so that a crash cannot damage them.
"""

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sanp.core.checks import check_is_network, checked_path
from sanp.core.errors import SanpError, shown
from sanp.core.files import check_tensor_file, write_atomically
from sanp.core.forward_size import check_forward, check_numbers
from sanp.core.int8_ranges import checked_ranges, keep_ranges, kept_ranges
from sanp.core.modules import unwrapped
from sanp.core.network_tensors import fill, tensors_of
from sanp.core.zero_packing import Packing, checked_packings
from sanp.gating.amount import Amount, parse_budget
from sanp.gating.dial import read_dial
from sanp.gating.network import GatedNetwork, Origin
from sanp.gating.trained_budgets import TrainedBudgets
from sanp.methods import method_named
from sanp.methods.parts.gating_method import Gating
from sanp.methods.parts.network_forms import form_of, rebuild
from sanp.spm.module import BEFORE, SPM, SPMConfig

NETWORK_FORMAT = 1
NETWORK_KEY = "sanp"


def save(network: nn.Module, path: str | os.PathLike[str], *, dtype: torch.dtype | None = None) -> None:
    """Writes a network, pruned or not, to the file ``path``.

    ``dtype`` is the number format of kernels and matrices in the file; ``torch.float16`` halves its size.
    """
    check_is_network(network)
    network = unwrapped(network)
    path = checked_path(path)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise SanpError(f"dtype is {dtype!r}: give a kind of floating point, as torch.float16")
    gated = network if isinstance(network, GatedNetwork) else None
    form = form_of(network)
    net: nn.Module = network if gated is None and form is None else network.net  # type: ignore[assignment]
    # Thresholds are in the header. A file that is not gated can be read by others too, so its tensors stay whole.
    tensors, packings = tensors_of(net, dtype, pack=gated is not None, left_out=_threshold_names(net))
    gates = None if gated is None else _gates_header(gated)
    header = {"format": NETWORK_FORMAT, "network": type(net).__name__, "gates": gates, "form": form}
    if (ranges := kept_ranges(network)) is not None:
        header["int8_ranges"] = ranges
    if packings:
        header["packed"] = {name: packing.as_header() for name, packing in packings.items()}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, {NETWORK_KEY: json.dumps(header)}))


def load(path: str | os.PathLike[str], net: nn.Module, example_input: Any = None) -> nn.Module:
    """The network that :func:`save` wrote to the file ``path``.

    ``net`` is a fresh network of the same architecture, without gates; it is not changed. ``example_input`` is needed
    only if the network was pruned with an example that held more than tensors. Returns a :class:`GatedNetwork` or
    another form of pruned network if the file holds one, else a plain network.
    """
    check_is_network(net)
    header, tensors = read_network_file(checked_path(path))
    network = _loaded(path, net, header, tensors, example_input)
    keep_ranges(network, header.int8_ranges)
    return network


def _loaded(
    path: Any, net: nn.Module, header: "Header", tensors: Mapping[str, Tensor], example_input: Any
) -> nn.Module:
    if header.form is not None:
        return _load_form(path, net, header, tensors, example_input)
    if header.gates is None:
        net = copy.deepcopy(net)
        fill(net, tensors, header.packed, path)
        return net
    origin = _origin(header.gates, path)
    example = _zeros(origin.input_shapes, origin.input_keys, net, path) if example_input is None else example_input
    method = method_named(origin.method)
    if not isinstance(method, Gating):
        raise SanpError(f"{path}: the header says that {origin.method} gated this network, which it never does")
    gated = method.gate(net, example, spm=origin.spm, skip=origin.skip, shortcuts=origin.shortcuts)
    gated.origin = origin
    fill(gated.net, tensors, header.packed, path, left_out=_threshold_names(gated.net))
    _set_thresholds(gated, header.gates, path)
    gated.train(net.training)
    return gated


def _load_form(path: Any, net: nn.Module, header: "Header", tensors: Mapping[str, Tensor], example: Any) -> nn.Module:
    """Loads a cut, sparse or pixel-gated network."""
    form = header.form or {}
    try:
        if example is None:
            shapes = () if form["input_shape"] is None else (tuple(map(_size, form["input_shape"])),)
            example = _zeros(shapes, None, net, path)[0]
        network = rebuild(net, form, example)
    except (KeyError, TypeError, AttributeError) as error:
        raise SanpError(f"{path}: the header's form is damaged ({type(error).__name__}: {error})") from error
    fill(network.net, tensors, header.packed, path)  # type: ignore[arg-type]
    return network.train(net.training)


@dataclass(frozen=True)
class Header:
    """The header of a file."""

    network: str
    """name of the network's class"""
    gates: dict[str, Any] | None
    """how a gated network was gated, and its thresholds; None for other networks"""
    form: dict[str, Any] | None
    """the form of a network that is cut, sparse or gated by pixel; None for other networks"""
    int8_ranges: dict[str, float] | None = None
    """the ranges of a network that was calibrated for int8"""
    packed: Mapping[str, Packing] = field(default_factory=dict)
    """the tensors whose rows and columns of zeros were not written, by name"""


def read_network_file(path: str | os.PathLike[str]) -> tuple[Header, dict[str, Tensor]]:
    """The header and the tensors of the file ``path``; an error if it is damaged or not from :func:`save`."""
    if not Path(path).is_file():
        raise SanpError(f"{path} is not a file: give a .safetensors file that sanp.save wrote")
    try:
        check_tensor_file(Path(path))
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
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
        ranges = checked_ranges(header.get("int8_ranges"))
        packings = checked_packings(header.get("packed"))
    except SanpError as error:
        raise SanpError(f"{path}: the header is damaged: {error}") from error
    return Header(network, gates, form, ranges, packings), tensors


def _gates_header(gated: GatedNetwork) -> dict[str, Any]:
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
    }


def _origin(gates: dict[str, Any], path: Any) -> Origin:
    try:
        known = {each.name for each in fields(SPMConfig)}
        unknown = set(gates["spm"]) - known
        if unknown:
            raise SanpError(f"spm has unknown settings {', '.join(sorted(unknown))}")
        shapes = tuple(tuple(_size(size) for size in shape) for shape in gates["input_shapes"])
        keys = None if gates["input_keys"] is None else tuple(map(str, gates["input_keys"]))
        if keys is not None and shapes and len(keys) != len(shapes):
            raise SanpError(f"{path}: the header has {len(keys)} input_keys for {len(shapes)} input_shapes")
        skip = tuple(map(str, gates["skip"]))
        spm = SPMConfig(**{**BEFORE, **gates["spm"]})
        return Origin(spm, skip, bool(gates["shortcuts"]), shapes, keys, str(gates["method"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SanpError(f"{path}: the header's gates are damaged ({type(error).__name__}: {error})") from error


def _size(size: object) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise SanpError(f"{shown(size)} in input_shapes is not a size")
    return size


def _zeros(shapes: tuple[tuple[int, ...], ...], keys: tuple[str, ...] | None, net: nn.Module, path: Any) -> Any:
    """An example input of these shapes for ``net``, positional or under the names ``keys``."""
    if not shapes:
        raise SanpError(
            f"{path} does not say what input the network takes: give load the example_input that it was pruned with"
        )
    check_numbers(shapes, path)
    empty = tuple(torch.empty(shape, device="meta") for shape in shapes)
    check_forward(net, empty if keys is None else dict(zip(keys, empty, strict=True)), path)
    zeros = tuple(torch.zeros(shape) for shape in shapes)
    return zeros if keys is None else dict(zip(keys, zeros, strict=True))


def _threshold_names(net: nn.Module) -> set[str]:
    """The names of the SPMs' thresholds, which are saved in the header."""
    return {f"{name}.threshold" for name, module in net.named_modules() if isinstance(module, SPM)}


def _trained(gated: GatedNetwork, gates: dict[str, Any]) -> TrainedBudgets | None:
    """What a network was trained for; files of older versions only have its budget."""
    if "trained" not in gates:
        if gated.dial is not None:
            return TrainedBudgets(gated.dial.low, gated.dial.high)
        kept = None if gated.budget is None or gated.budget.unit == "ms" else gated.kept_for(gated.budget)
        return None if kept is None else TrainedBudgets(kept, kept)
    found = gates["trained"]
    return None if found is None else TrainedBudgets(float(found["low"]), float(found["high"]))


def _set_thresholds(gated: GatedNetwork, gates: dict[str, Any], path: Any) -> None:
    try:
        for name, layer in gated.layers.items():
            threshold = torch.tensor(float(gates["thresholds"][name]), dtype=layer.spm.threshold.dtype)
            if not bool(torch.isfinite(threshold)):
                raise ValueError(f"the threshold of {name} is {shown(gates['thresholds'][name])}")
            layer.spm.threshold.copy_(threshold)
        gated.budget = None if gates["budget"] is None else parse_budget(Amount(**gates["budget"]))
        gated.dial = None if gates.get("dial") is None else read_dial(gates["dial"])
        gated.trained = _trained(gated, gates)
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise SanpError(
            f"{path}: the header's thresholds or budget are damaged ({type(error).__name__}: {error})"
        ) from error
