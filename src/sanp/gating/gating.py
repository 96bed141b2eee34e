"""sanp.gate: turns a network into a gated one, with an SPM in every convolution that can have one."""

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

from sanp.core.checks import check_is_network, check_kind, check_many
from sanp.core.copying import copy_of
from sanp.core.errors import SanpError, unknown_name
from sanp.core.modules import unwrapped
from sanp.gating.cost import CostModel
from sanp.gating.count import trace_batch
from sanp.gating.network import GatedNetwork, Origin
from sanp.gating.pointwise import with_convolutions, write_as_convolutions
from sanp.gating.sites import FUNCTIONAL, Sites, find_sites
from sanp.gating.verify import check_unchanged
from sanp.spm.gated_conv import FollowingConv, GatedConv, MovedNorm
from sanp.spm.module import SPM, SPMConfig, build_spm
from sanp.tracing.graph import Trace
from sanp.tracing.masks import OpenChannels
from sanp.tracing.pointwise import pointwise_paths
from sanp.tracing.topology import Topology, build_topology, module_path
from sanp.tracing.tracer import trace_forward

MakeSPM = Callable[[int, int, SPMConfig], SPM]
"""Makes the SPM of a layer from its numbers of input and output channels and the settings."""


MIXED_ROWS = "its rows are not the samples of the batch"
NOT_RUN = "did not run on the example"


def gate(
    net: nn.Module,
    example_input: Any,
    *,
    spm: SPMConfig | None = None,
    skip: Sequence[str] = (),
    shortcuts: bool = True,
    make_spm: MakeSPM = build_spm,
) -> GatedNetwork:
    """A copy of ``net`` with an SPM in every convolution that can have one.

    ``example_input`` is what the forward of ``net`` takes: a tensor, a tuple of arguments or a dict of keyword
    arguments. ``spm`` holds the settings of the SPMs. ``skip`` names modules that stay dense, by name or glob pattern.
    ``shortcuts=False`` leaves 1x1 shortcut convolutions dense too. ``make_spm`` makes the SPM of a layer; other methods
    than SANP have their own.

    Convolutions that stay dense are listed in ``skipped`` of the result, with the reason. ``net`` itself is not
    changed, except that lazy layers get their shapes from the example, as in any first forward.
    """
    check_is_network(net)
    if not isinstance(spm, SPMConfig | None):
        raise SanpError(f"spm is a {type(spm).__name__}: give a sanp.SPMConfig")
    check_kind("shortcuts", shortcuts, bool, "true or false")
    net = unwrapped(net)
    if isinstance(net, GatedNetwork) or any(isinstance(module, GatedConv) for module in net.modules()):
        raise SanpError("this network is gated already: give the original, or use the gated one as it is")
    spm = spm or SPMConfig()
    if any(map(is_lazy, [*net.parameters(), *net.buffers()])):
        trace_forward(net, example_input)  # the first forward gives lazy layers their shapes
    net = copy_of(net)
    if not any(True for _ in net.children()):
        net = nn.Sequential(net)  # a single layer needs a parent in which it can be replaced
    trace, example = trace_batch(net, example_input)
    if pointwise := pointwise_paths(trace):
        write_as_convolutions(net, pointwise)
        trace, example = trace_batch(net, example_input)
    sites = find_sites(trace, _skipped_by_name(net, skip), shortcuts)
    if not sites.convolutions:
        raise SanpError(f"{type(net).__name__} ran no convolution on the example: there is nothing to gate")
    topology = _topology(trace, sites)
    skipped = sites.reasons | _never_ran(net, trace)
    _insert(net, sites, topology, lambda inputs, outputs: make_spm(inputs, outputs, spm))
    gated = GatedNetwork(net, topology, skipped, _origin(example_input, spm, tuple(skip), shortcuts))
    check_unchanged(gated, example, trace.result)
    return gated


def planned_cost(net: nn.Module, example_input: Any) -> CostModel:
    """The cost model that ``net`` would have if it were gated; the network is not changed.

    ``example_input`` is what its forward takes.
    """
    trace, _ = trace_batch(net, example_input)
    written = with_convolutions(net, trace)
    if written is not net:
        trace, _ = trace_batch(written, example_input)
    return CostModel(_topology(trace, find_sites(trace, set(), shortcuts=True)))


def _origin(example: Any, spm: SPMConfig, skip: tuple[str, ...], shortcuts: bool) -> Origin:
    parts = (
        example if isinstance(example, tuple) else tuple(example.values()) if isinstance(example, dict) else (example,)
    )
    plain = all(isinstance(part, Tensor) and part.is_floating_point() for part in parts)
    shapes = tuple(tuple(part.shape) for part in parts) if plain else ()
    keys = tuple(example) if plain and isinstance(example, dict) else None
    return Origin(spm, skip, shortcuts, shapes, keys)


def _skipped_by_name(net: nn.Module, patterns: Sequence[str]) -> set[str]:
    if isinstance(patterns, str):
        raise SanpError(f"skip={patterns!r} is one string: give a list of names or patterns, as skip=[{patterns!r}]")
    check_many("skip", patterns, "a list of names or patterns")
    names = [name for name, _ in net.named_modules() if name]
    found: set[str] = set()
    for pattern in patterns:
        matching = fnmatch.filter(names, pattern)
        if not matching:
            raise unknown_name("module to skip", pattern, names)
        found.update(matching)
    return found


def _never_ran(net: nn.Module, trace: Trace) -> dict[str, str]:
    """Convolutions that did not run on the example, such as an auxiliary head that only training uses."""
    ran = {call.path for call in trace.calls}
    return {path: NOT_RUN for path, module in net.named_modules() if isinstance(module, _ConvNd) and path not in ran}


def _topology(trace: Trace, sites: Sites) -> Topology:
    """The topology with a gate at each site. Sites are dropped where the first dimension is not the batch."""
    while True:
        topology = build_topology(trace, sites.names, sites.places)
        placed = {site.name for site in sites.places.values()}
        mixed = {layer.name for layer in topology.layers if layer.role == "dense"} & placed
        if not mixed:
            return topology
        for name in mixed:
            sites.drop(module_path(name), MIXED_ROWS)


def _insert(net: nn.Module, sites: Sites, topology: Topology, make_spm: Callable[[int, int], SPM]) -> None:
    """Replaces the convolutions at the sites by gated ones, and moves their batch norms inside."""
    modules = dict(net.named_modules())
    instead: dict[nn.Module, nn.Module] = {}
    for layer in topology.layers:
        path = layer.name
        if path not in sites.norms or ":" in path:
            continue
        norm_path = sites.norms[path]
        outside = norm_path == FUNCTIONAL
        norm = None if norm_path is None or outside else modules[norm_path]
        gated: GatedConv | FollowingConv
        if layer.role == "gated":
            spm = make_spm(layer.in_channels, layer.out_channels)
            gated = GatedConv(path, modules[path], norm, spm, norm_outside=outside)
        else:
            followed = OpenChannels(topology.masks, layer.outputs)
            gated = FollowingConv(path, modules[path], norm, followed, norm_outside=outside)
        _device_and_mode(gated, modules[path])
        instead[modules[path]] = gated
        if norm is not None:
            instead[norm] = MovedNorm(norm)
    _replace(net, instead)


def _device_and_mode(gated: nn.Module, conv: nn.Module) -> None:
    parameter = next(conv.parameters(), None)
    if parameter is not None:
        gated.to(parameter.device)
    gated.train(conv.training)


def _replace(net: nn.Module, instead: dict[nn.Module, nn.Module]) -> None:
    """Replaces modules by others wherever the network refers to them, also in plain lists and dicts of modules."""
    for parent in list(net.modules()):
        for name, child in list(parent._modules.items()):
            if child in instead:
                setattr(parent, name, instead[child])
        for held in [value for value in vars(parent).values() if isinstance(value, list | dict)]:
            for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
                if isinstance(value, nn.Module) and value in instead and held is not parent._modules:
                    held[key] = instead[value]
