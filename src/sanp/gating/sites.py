"""Where gates can stand in a traced network: behind which batch norm of a convolution, or why it can have none."""

from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from sanp.tracing.graph import ConvolutionCall, ModuleCall, Node, Trace, Value
from sanp.tracing.operators import KEEP_ZERO
from sanp.tracing.topology import Site, is_linear, module_path

BATCH_NORM = set(
    (
        "native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit cudnn_batch_norm "
        "miopen_batch_norm batch_norm"
    ).split()
)
AFFINE = set("mul add sub div".split())

FORWARD = "forward"
"""The path of a convolution that the network's own forward calls as a function; no module can be named so."""
FUNCTIONAL = "functional"
"""What stands for the path of a batch norm that is no module: the network's forward calls ``F.batch_norm`` itself."""


@dataclass
class Sites:
    """The name of every convolution and linear layer call, and the place of its gate, both by index of the node."""

    names: dict[int, str] = field(default_factory=dict)
    places: dict[int, Site] = field(default_factory=dict)
    norms: dict[str, str | None] = field(default_factory=dict)
    """name of a convolution with a place to the path of the batch norm that moves inside it"""
    reasons: dict[str, str] = field(default_factory=dict)
    """name of a convolution without a place to why"""

    @property
    def convolutions(self) -> set[str]:
        """All convolutions, with a place or without."""
        return {site.name for site in self.places.values()} | self.reasons.keys()

    def drop(self, path: str, reason: str) -> None:
        """Leaves every call of a module dense."""
        for index, site in list(self.places.items()):
            if module_path(site.name) == path:
                del self.places[index]
                del self.norms[site.name]
                self.reasons[site.name] = reason


def find_sites(trace: Trace, skip: set[str], shortcuts: bool) -> Sites:
    """Looks at every convolution of a trace; ``skip`` holds module paths."""
    finder = _Finder(trace, skip, shortcuts)
    for index, node in enumerate(trace.nodes):
        is_conv = node.op == "convolution" and isinstance(ConvolutionCall.of(node).input, Value)
        if is_conv or is_linear(node):
            finder.name(index, trace.calls[node.call].path or FORWARD)
        if is_conv:
            finder.place(index, node)
    finder.settle_norms()
    return finder.sites


class _Finder:
    """Fills in the sites of one trace."""

    def __init__(self, trace: Trace, skip: set[str], shortcuts: bool) -> None:
        self.trace, self.skip, self.shortcuts = trace, skip, shortcuts
        self.consumers = trace.consumers()
        self.calls_of = Counter(call.path for call in trace.calls)
        self.sites = Sites()
        self._named: Counter[str] = Counter()

    def name(self, index: int, path: str) -> None:
        """Calls a layer by its module's path; a second call of the same is ``path:2``."""
        self._named[path] += 1
        self.sites.names[index] = path if self._named[path] == 1 else f"{path}:{self._named[path]}"

    def place(self, index: int, node: Node) -> None:
        """Notes where the gate of a convolution can stand, or why it cannot have one."""
        call, name = self.trace.calls[node.call], self.sites.names[index]
        reason = self._obstacle(node, call)
        if reason is not None:
            self.sites.reasons[name] = reason
            return
        out = node.outputs[0]
        assert out is not None
        norm = self._norm_after(out)
        functional = self._functional_norm_after(out) if norm is None and self.calls_of[call.path] == 1 else None
        value = norm.outputs[0] if norm is not None else functional if functional is not None else out
        self.sites.places[index] = Site(name, value, may_follow=self.calls_of[call.path] == 1)
        self.sites.norms[name] = norm.path if norm is not None else None if functional is None else FUNCTIONAL

    def _obstacle(self, node: Node, call: ModuleCall) -> str | None:
        if any(call.path == path or call.path.startswith(path + ".") for path in self.skip):
            return "named in skip"
        if call.outputs != (node.outputs[0],) or len(call.inputs) != 1 or call.parent < 0:
            return "the convolution is called inside a larger module, not as a module of its own"
        if not call.is_plain:
            return "its module takes or gives more than one tensor"
        if sum(self.trace.nodes[i].op == "convolution" for i in range(call.first_node, call.end_node)) != 1:
            return "its module runs several convolutions"
        before, after = (self.trace.shapes[value.index] for value in (call.inputs[0], call.outputs[0]))
        if before[0] != after[0] or len(before) < 3:
            return "its module takes no batch of feature maps"
        if not self.shortcuts and self._is_shortcut(node, call):
            return "shortcut convolution"
        return None

    def _norm_after(self, value: Value) -> ModuleCall | None:
        """The call of a batch norm module that alone reads the value, if there is one."""
        readers = [self.trace.nodes[i] for i in self.consumers.get(value, ())]
        calls = {node.call for node in readers}
        if len(calls) != 1 or value in self.trace.outputs:
            return None
        call = self.trace.calls[calls.pop()]
        alone = call.inputs == (value,) and len(call.outputs) == 1 and call.parent >= 0 and call.is_plain
        known = isinstance(call.module, _BatchNorm | _InstanceNorm)
        return call if alone and (known or self._is_norm(call)) else None

    def _is_norm(self, call: ModuleCall) -> bool:
        """Someone's own batch norm: channels stay apart, and each has constants of its own; it may end in a ReLU."""
        nodes = self.trace.nodes[call.first_node : call.end_node]
        apart = all(_kind(node) in BATCH_NORM | KEEP_ZERO | AFFINE and len(node.inputs()) == 1 for node in nodes)
        if not apart or not nodes:
            return False
        channels = self.trace.shapes[call.outputs[0].index][1]
        constants = [part for node in nodes if _kind(node) in AFFINE for part in node.args if isinstance(part, Tensor)]
        return any(_kind(node) in BATCH_NORM for node in nodes) or any(
            constant.numel() == channels > 1 for constant in constants
        )

    def _functional_norm_after(self, value: Value) -> Value | None:
        """What a batch norm that is no module makes of the value, if that alone reads it."""
        readers = [self.trace.nodes[i] for i in self.consumers.get(value, ())]
        if len(readers) != 1 or value in self.trace.outputs or readers[0].args[0] != value:
            return None
        return readers[0].outputs[0] if _kind(readers[0]) in BATCH_NORM else None

    def _is_shortcut(self, node: Node, call: ModuleCall) -> bool:
        """A 1x1 convolution beside another branch that starts from the same input."""
        weight = ConvolutionCall.of(node).weight
        kernel = weight.shape[2:] if isinstance(weight, Tensor) else (0,)
        return all(size == 1 for size in kernel) and len(self.consumers[call.inputs[0]]) > 1

    def settle_norms(self) -> None:
        """A batch norm moves inside its convolution only if both are always used together."""
        found: dict[str, set[str | None]] = {}
        for name, norm in self.sites.norms.items():
            found.setdefault(module_path(name), set()).add(norm)
        for index, site in list(self.sites.places.items()):
            path, norm = module_path(site.name), self.sites.norms[site.name]
            together = norm in (None, FUNCTIONAL) or self.calls_of[norm] == self.calls_of[path]
            if len(found[path]) == 1 and together:
                continue
            out = self.trace.nodes[index].outputs[0]
            assert out is not None
            self.sites.places[index] = Site(site.name, out, site.may_follow)
            self.sites.norms[site.name] = None


def _kind(node: Node) -> str:
    return node.base_op
