"""Forms of networks in files that are neither plain nor gated: cut, sparse, or gated by pixel."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sanp.core.errors import SanpError, unknown_name
from sanp.methods.cutting.cut import CutNetwork, Kept
from sanp.methods.parts.pixel_gate import PixelGatedNetwork
from sanp.methods.weight import SparseNetwork

Described = dict[str, Any]
"""the form of a network, as a file's header holds it"""
Rebuild = Callable[[nn.Module, Mapping[str, Any], Any], nn.Module]
"""Builds a pruned network from a fresh dense network, the form in the header and an example input."""

PIXEL_SETTINGS = {"grouped": False, "shuffle": False, "gate_all": True}
"""how channel gating is done, with the values that files of older versions lack"""


def form_of(network: nn.Module) -> Described | None:
    """The form of a network, from which it can be built again; None for plain and gated networks."""
    if isinstance(network, CutNetwork):
        kept = {path: {"inputs": each.inputs, "outputs": each.outputs} for path, each in network.kept.items()}
        return {"kind": "cut", "kept": kept, **_origin(network)}
    if isinstance(network, SparseNetwork):
        return {"kind": "sparse", **_origin(network)}
    if isinstance(network, PixelGatedNetwork):
        how = {name: getattr(network, name) for name in ("groups", *PIXEL_SETTINGS)}
        return {"kind": "pixels", **how, **_origin(network)}
    return None


def _origin(network: CutNetwork | SparseNetwork | PixelGatedNetwork) -> Described:
    shape = network.input_shape
    return {"method": network.method, "input_shape": None if shape is None else list(shape)}


def rebuild(net: nn.Module, form: Mapping[str, Any], example: Any) -> nn.Module:
    """A pruned network of the given form, with the weights of the fresh network ``net``, which is not changed.

    ``example`` is an input for the network.
    """
    kind = form.get("kind")
    if kind not in FORMS:
        raise unknown_name("kind of network in the header", kind, FORMS)
    return FORMS[kind](net, form, example)


def _cut(net: nn.Module, form: Mapping[str, Any], example: Any) -> nn.Module:
    modules = dict(net.named_modules())
    kept = {}
    for path, each in form["kept"].items():
        if path not in modules:
            raise SanpError(f"the file's network was cut at {path!r}, which {type(net).__name__} does not have")
        weight = modules[path].weight
        sizes = weight.shape if isinstance(weight, Tensor) and weight.dim() > 1 else (_features(modules[path]), 0)
        grouped = getattr(modules[path], "groups", 1) > 1
        inputs = sizes[0] if grouped else sizes[1]
        kept[path] = Kept(_indices(each["inputs"], inputs, path), _indices(each["outputs"], sizes[0], path))
    return CutNetwork(net, kept, example, str(form["method"]))


def _features(module: nn.Module) -> int:
    return int(getattr(module, "num_features", 0))


def _indices(given: Any, size: int, path: str) -> tuple[int, ...] | None:
    """Channel numbers from a header; an error if they do not ascend or are not in a layer of ``size`` channels."""
    if given is None:
        return None
    right = isinstance(given, list) and given and all(type(index) is int for index in given)
    if not right or given != sorted(set(given)) or given[0] < 0 or given[-1] >= size:
        raise SanpError(f"the file's kept channels of {path!r} do not fit a layer of {size} channels")
    return tuple(given)


def _sparse(net: nn.Module, form: Mapping[str, Any], example: Any) -> nn.Module:
    return SparseNetwork(copy.deepcopy(net), example)


def _pixels(net: nn.Module, form: Mapping[str, Any], example: Any) -> nn.Module:
    groups = form["groups"]
    if type(groups) is not int or groups < 2:
        raise SanpError(f"the file's channel gating has {groups!r} groups: it needs at least 2")
    how = {name: form.get(name, before) for name, before in PIXEL_SETTINGS.items()}
    wrong = next((name for name, value in how.items() if type(value) is not bool), None)
    if wrong is not None:
        raise SanpError(f"the file's channel gating has {wrong} {how[wrong]!r}: it must be true or false")
    return PixelGatedNetwork(copy.deepcopy(net), example, groups, **how)


FORMS: dict[str, Rebuild] = {"cut": _cut, "sparse": _sparse, "pixels": _pixels}
