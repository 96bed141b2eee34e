"""sanp.save and sanp.load: networks as safetensors files with a JSON header; nothing is ever unpickled.

The header says how the network was pruned, so that a fresh network can be prepared in the same way and filled with the
saved tensors. Files are written to a temporary file first and then renamed, so that a crash cannot damage them.
"""

import copy
import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sanp.checkpoint.header import (
    NETWORK_FORMAT,
    NETWORK_KEY,
    Header,
    gates_header,
    origin_of,
    read_network_file,
    restore_gates,
    shapes_of,
)
from sanp.core.checks import check_is_network, checked_path
from sanp.core.errors import SanpError
from sanp.core.files import read_tensor_file, write_atomically
from sanp.core.forward_size import check_forward, check_numbers
from sanp.core.int8_calibration import Int8Calibration, keep_calibration, kept_calibration
from sanp.core.modules import unwrapped
from sanp.core.network_tensors import fill_network, tensors_of
from sanp.gating.network import GatedNetwork
from sanp.methods import method_named
from sanp.methods.parts.gating_method import Gating
from sanp.methods.parts.network_forms import form_of, rebuild
from sanp.spm.module import SPM


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
    gates = None if gated is None else gates_header(gated)
    header = {"format": NETWORK_FORMAT, "network": type(net).__name__, "gates": gates, "form": form}
    if (calibration := kept_calibration(network)) is not None:
        header["int8"] = calibration.as_dict()
    if packings:
        header["packed"] = {name: packing.as_header() for name, packing in packings.items()}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, {NETWORK_KEY: json.dumps(header)}))


def add_calibration(path: str | os.PathLike[str], found: Int8Calibration) -> None:
    """Writes a network's calibration for int8 into its file; everything else in the file stays as it is."""
    path = checked_path(path)
    read_network_file(path)  # an error if it is none
    metadata, tensors = read_tensor_file(path)
    header = json.dumps({**json.loads(metadata[NETWORK_KEY]), "int8": found.as_dict()})
    write_atomically(path, lambda temporary: save_file(tensors, temporary, {**metadata, NETWORK_KEY: header}))


def load(path: str | os.PathLike[str], net: nn.Module, example_input: Any = None) -> nn.Module:
    """The network that :func:`save` wrote to the file ``path``.

    ``net`` is a fresh network of the same architecture, without gates; it is not changed. ``example_input`` is needed
    only if the network was pruned with an example that held more than tensors. Returns a :class:`GatedNetwork` or
    another form of pruned network if the file holds one, else a plain network.
    """
    check_is_network(net)
    header, tensors = read_network_file(checked_path(path))
    network = _loaded(path, net, header, tensors, example_input)
    keep_calibration(network, header.int8)
    return network


def _loaded(path: Any, net: nn.Module, header: Header, tensors: Mapping[str, Tensor], example_input: Any) -> nn.Module:
    if header.form is not None:
        return _load_form(path, net, header, tensors, example_input)
    if header.gates is None:
        net = copy.deepcopy(net)
        fill_network(net, tensors, header.packed, path)
        return net
    origin = origin_of(header.gates, path)
    example = _zeros(origin.input_shapes, origin.input_keys, net, path) if example_input is None else example_input
    method = method_named(origin.method)
    if not isinstance(method, Gating):
        raise SanpError(f"{path}: the header says that {origin.method} gated this network, which it never does")
    gated = method.gate(net, example, spm=origin.spm, skip=origin.skip, shortcuts=origin.shortcuts)
    gated.origin = origin
    fill_network(gated.net, tensors, header.packed, path, left_out=_threshold_names(gated.net))
    restore_gates(gated, header.gates, path)
    gated.train(net.training)
    return gated


def _load_form(path: Any, net: nn.Module, header: Header, tensors: Mapping[str, Tensor], example: Any) -> nn.Module:
    """Loads a cut, sparse or pixel-gated network."""
    form = header.form or {}
    try:
        if example is None:
            shapes = () if form["input_shape"] is None else shapes_of([form["input_shape"]])
            example = _zeros(shapes, None, net, path)[0]
        network = rebuild(net, form, example)
    except (KeyError, TypeError, AttributeError) as error:
        raise SanpError(f"{path}: the header's form is damaged ({type(error).__name__}: {error})") from error
    fill_network(network.net, tensors, header.packed, path)  # type: ignore[arg-type]
    return network.train(net.training)


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
