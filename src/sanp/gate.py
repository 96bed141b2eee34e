"""Someone else's network in, gated network out: an SPM in every convolution that can have one."""

import copy
import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.cost import CostModel
from sanp.errors import SanpError, unknown_name
from sanp.gated_conv import FollowingConv, GatedConv
from sanp.liveness import OpenChannels
from sanp.network import GatedNetwork, Origin
from sanp.spm import SPM, SPMConfig, build_spm
from sanp.topology import Site, Topology, build_topology, is_linear
from sanp.trace import ModuleCall, Node, Trace, Value, trace

MakeSPM = Callable[[int, int, SPMConfig], SPM]
"""Input channels, output channels and settings to an SPM; a method may give its own."""


def gate(
    net: nn.Module,
    example_input: Any,
    *,
    spm: SPMConfig | None = None,
    skip: Sequence[str] = (),
    shortcuts: bool = True,
    make_spm: MakeSPM = build_spm,
) -> GatedNetwork:
    """A copy of ``net`` with an SPM in every convolution that can have one; ``net`` is left as it was.

    ``skip`` takes module names or glob patterns; ``shortcuts=False`` leaves 1x1 shortcut convolutions dense. What is
    left dense is listed in ``skipped`` of the result with the reason.
    """
    if isinstance(net, GatedNetwork) or any(isinstance(module, GatedConv) for module in net.modules()):
        raise SanpError("this network is gated already: give the original, or use the gated one as it is")
    spm = spm or SPMConfig()
    try:
        net = copy.deepcopy(net)
    except Exception as error:
        raise SanpError(f"{type(net).__name__} cannot be copied ({error}): build it anew and gate that") from error
    if not any(True for _ in net.children()):
        net = nn.Sequential(net)  # a single layer: its gated form needs a place to stand
    seen = trace(net, example_input)
    finder = _SiteFinder(net, seen, _skipped_by_name(net, skip), shortcuts)
    if not finder.names:
        raise SanpError(f"{type(net).__name__} ran no convolution on the example: there is nothing to gate")
    topology = build_topology(seen, finder.names, finder.sites)
    _insert(net, finder, topology, lambda inputs, outputs: make_spm(inputs, outputs, spm))
    return GatedNetwork(net, topology, finder.reasons, _origin(example_input, spm, tuple(skip), shortcuts))


def _origin(example: Any, spm: SPMConfig, skip: tuple[str, ...], shortcuts: bool) -> Origin:
    parts = (
        example if isinstance(example, tuple) else tuple(example.values()) if isinstance(example, dict) else (example,)
    )
    plain = all(isinstance(part, Tensor) for part in parts)
    shapes = tuple(tuple(part.shape) for part in parts) if plain else ()
    return Origin(spm, skip, shortcuts, shapes, tuple(example) if isinstance(example, dict) else None)


def _skipped_by_name(net: nn.Module, patterns: Sequence[str]) -> set[str]:
    if isinstance(patterns, str):
        raise SanpError(f"skip={patterns!r} is one string: give a list of names or patterns, as skip=[{patterns!r}]")
    names = [name for name, _ in net.named_modules() if name]
    found: set[str] = set()
    for pattern in patterns:
        matching = fnmatch.filter(names, pattern)
        if not matching:
            raise unknown_name("module to skip", pattern, names)
        found.update(matching)
    return found


class _SiteFinder:
    """Finds where gates can stand: for each convolution its module and the batch norm behind it, or why it has none."""

    def __init__(self, net: nn.Module, seen: Trace, skip: set[str], shortcuts: bool) -> None:
        self.seen = seen
        self.consumers = seen.consumers()
        self.paths = [call.path for call in seen.calls]
        self.names: dict[int, str] = {}
        self.sites: dict[int, Site] = {}
        self.norms: dict[str, str | None] = {}
        """path of a gated convolution to the path of its batch norm"""
        self.reasons: dict[str, str] = {}
        for index, node in enumerate(seen.nodes):
            is_conv = node.op == "convolution" and isinstance(node.args[0], Value)
            if is_conv or is_linear(node):
                self.names[index] = self._unique(seen.calls[node.call].path)
            if is_conv:
                reason = self._place(index, node, skip, shortcuts)
                if reason is not None:
                    self.reasons[self.names[index]] = reason
        self._drop_inconsistent()

    def _unique(self, path: str) -> str:
        name, call = path, 1
        while name in self.names.values():
            call += 1
            name = f"{path}:{call}"
        return name

    def _place(self, index: int, node: Node, skip: set[str], shortcuts: bool) -> str | None:
        """Notes the site of a convolution, or says why it has none."""
        call = self.seen.calls[node.call]
        if any(call.path == path or call.path.startswith(path + ".") for path in skip):
            return "named in skip"
        if node.args[6]:
            return "transposed convolution"
        if call.outputs != (node.outputs[0],) or len(call.inputs) != 1:
            return "the convolution is called inside a larger module, not as a module of its own"
        if sum(self.seen.nodes[i].op == "convolution" for i in range(call.first_node, call.end_node)) != 1:
            return "its module runs several convolutions"
        if not shortcuts and self._is_shortcut(node, call):
            return "shortcut convolution"
        norm = self._norm_after(node.outputs[0])
        self.sites[index] = Site(self.names[index], norm.outputs[0] if norm else call.outputs[0])
        self.norms[self.names[index]] = norm.path if norm else None
        return None

    def _norm_after(self, value: Value | None) -> ModuleCall | None:
        """The call of a batch norm module that alone reads the value, if there is one."""
        readers = [self.seen.nodes[i] for i in self.consumers.get(value, ())]  # type: ignore[arg-type]
        calls = {node.call for node in readers}
        if len(calls) != 1 or value in self.seen.outputs:
            return None
        call = self.seen.calls[calls.pop()]
        alone = call.inputs == (value,) and len(call.outputs) == 1
        return call if alone and (isinstance(call.module, _BatchNorm) or self._is_affine(call)) else None

    def _is_affine(self, call: ModuleCall) -> bool:
        """A frozen batch norm: nothing but multiplying and adding constants."""
        nodes = self.seen.nodes[call.first_node : call.end_node]
        return bool(nodes) and all(
            node.op.removesuffix("_") in ("mul", "add", "sub", "div") and len(node.inputs()) == 1 for node in nodes
        )

    def _is_shortcut(self, node: Node, call: ModuleCall) -> bool:
        """A 1x1 convolution beside another branch that starts from the same input."""
        weight = node.args[1]
        kernel = weight.shape[2:] if isinstance(weight, Tensor) else (0,)
        return all(size == 1 for size in kernel) and len(self.consumers[call.inputs[0]]) > 1

    def _drop_inconsistent(self) -> None:
        """A batch norm moves inside its convolution only if both are always used together."""
        used: dict[str, int] = {}
        for path in self.paths:
            used[path] = used.get(path, 0) + 1
        for index, site in list(self.sites.items()):
            path = self.seen.calls[self.seen.nodes[index].call].path
            siblings = {self.norms.get(name, "none") for name in self.norms if name.partition(":")[0] == path}
            norm = self.norms[site.name]
            if len(siblings) == 1 and (norm is None or used[norm] == used[path]):
                continue
            out = self.seen.nodes[index].outputs[0]
            assert out is not None
            self.sites[index] = Site(site.name, out)
            self.norms[site.name] = None


def _insert(net: nn.Module, finder: _SiteFinder, topology: Topology, make_spm: Callable[[int, int], SPM]) -> None:
    """Replaces the convolutions at the sites by gated ones; their batch norms move inside."""
    modules = dict(net.named_modules())
    for layer in topology.layers:
        path = layer.name
        if layer.role == "dense" or ":" in path:
            continue
        norm_path = finder.norms[path]
        norm = modules[norm_path] if norm_path is not None else None
        gated: nn.Module
        if layer.role == "gated":
            gated = GatedConv(path, modules[path], norm, make_spm(layer.in_channels, layer.out_channels))
        else:
            gated = FollowingConv(path, modules[path], norm, OpenChannels(topology.columns, layer.outputs))
        _device_and_mode(gated, modules[path])
        _replace(net, modules[path], gated)
        if norm is not None:
            _replace(net, norm, nn.Identity())


def _device_and_mode(gated: nn.Module, conv: nn.Module) -> None:
    parameter = next(conv.parameters(), None)
    if parameter is not None:
        gated.to(parameter.device)
    gated.train(conv.training)


def _replace(net: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Puts ``new`` wherever ``old`` stands, under every name it has."""
    for parent in list(net.modules()):
        if isinstance(parent, GatedConv | FollowingConv):
            continue
        for name, child in list(parent.named_children()):
            if child is old:
                setattr(parent, name, new)


def ungated_cost(net: nn.Module, example_input: Any) -> CostModel:
    """The cost model of a network as it is, without any gate."""
    seen = trace(net, example_input)
    names = _SiteFinder(net, seen, set(), shortcuts=True).names
    return CostModel(build_topology(seen, names, {}))
