"""Finds the places for gates in a traced network: after which batch norm, or why a convolution can have none."""

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
"""Operator names of batch norms."""
AFFINE = set("mul add sub div".split())
"""Operators by which a batch norm may also be written."""

FORWARD = "forward"
"""Stands for the path of a convolution that the network's own forward calls as a function; no module has this name."""
ON_A_VECTOR = "a linear layer on a vector: its maps have one pixel, and a gate would cost as much as it saves"
"""Why the convolutions of squeeze-and-excitation and of some classifiers have no gate."""
FUNCTIONAL = "functional"
"""Stands for the path of a batch norm that the network's own forward calls as a function."""


@dataclass
class Sites:
    """The names of the layers of a trace, and the places for gates."""

    names: dict[int, str] = field(default_factory=dict)
    """index of the node of a convolution or linear layer to the layer's name"""
    places: dict[int, Site] = field(default_factory=dict)
    """index of the node of a convolution to the place of its gate"""
    norms: dict[str, str | None] = field(default_factory=dict)
    """name of a convolution that can have a gate to the path of its batch norm; None if it has none"""
    reasons: dict[str, str] = field(default_factory=dict)
    """name of a convolution that can have no gate to the reason"""

    @property
    def convolutions(self) -> set[str]:
        """The names of all convolutions, whether or not they can have a gate."""
        return {site.name for site in self.places.values()} | self.reasons.keys()

    def drop(self, path: str, reason: str) -> None:
        """Takes the gates from all calls of the module at ``path``, for the given reason."""
        for index, site in list(self.places.items()):
            if module_path(site.name) == path:
                del self.places[index]
                del self.norms[site.name]
                self.reasons[site.name] = reason


def find_sites(trace: Trace, skip: set[str], shortcuts: bool) -> Sites:
    """The places for gates in a trace.

    ``skip`` holds the paths of modules that stay dense, with everything in them. Without ``shortcuts``, 1x1 shortcut
    convolutions stay dense.
    """
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
    """Finds the sites of one trace."""

    def __init__(self, trace: Trace, skip: set[str], shortcuts: bool) -> None:
        self.trace, self.skip, self.shortcuts = trace, skip, shortcuts
        self.consumers = trace.consumers()
        self.calls_of = Counter(call.path for call in trace.calls)
        self.sites = Sites()
        self._named: Counter[str] = Counter()

    def name(self, index: int, path: str) -> None:
        """Names the layer at node ``index`` by its module's path; the second call of a module is ``path:2``."""
        self._named[path] += 1
        self.sites.names[index] = path if self._named[path] == 1 else f"{path}:{self._named[path]}"

    def place(self, index: int, node: Node) -> None:
        """Finds the place for the gate of a convolution, or the reason why it can have none."""
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
        if before[2:].numel() == after[2:].numel() == 1 and self._is_pointwise(node):
            return ON_A_VECTOR
        if not self.shortcuts and self._is_shortcut(node, call):
            return "shortcut convolution"
        return None

    def _norm_after(self, value: Value) -> ModuleCall | None:
        """The call of a batch norm module if it is the only reader of the value."""
        readers = [self.trace.nodes[i] for i in self.consumers.get(value, ())]
        calls = {node.call for node in readers}
        if len(calls) != 1 or value in self.trace.outputs:
            return None
        call = self.trace.calls[calls.pop()]
        alone = call.inputs == (value,) and len(call.outputs) == 1 and call.parent >= 0 and call.is_plain
        known = isinstance(call.module, _BatchNorm | _InstanceNorm)
        return call if alone and (known or self._is_norm(call)) else None

    def _is_norm(self, call: ModuleCall) -> bool:
        """Whether the module is a batch norm of another class: it treats each channel on its own, with constants for
        each channel. It may end in a ReLU."""
        nodes = self.trace.nodes[call.first_node : call.end_node]
        apart = all(node.base_op in BATCH_NORM | KEEP_ZERO | AFFINE and len(node.inputs()) == 1 for node in nodes)
        if not apart or not nodes:
            return False
        channels = self.trace.shapes[call.outputs[0].index][1]
        constants = [part for node in nodes if node.base_op in AFFINE for part in node.args if isinstance(part, Tensor)]
        return any(node.base_op in BATCH_NORM for node in nodes) or any(
            constant.numel() == channels > 1 for constant in constants
        )

    def _functional_norm_after(self, value: Value) -> Value | None:
        """The output of a batch norm that is called as a function, if it is the only reader of the value."""
        readers = [self.trace.nodes[i] for i in self.consumers.get(value, ())]
        if len(readers) != 1 or value in self.trace.outputs or readers[0].args[0] != value:
            return None
        return readers[0].outputs[0] if readers[0].base_op in BATCH_NORM else None

    def _is_shortcut(self, node: Node, call: ModuleCall) -> bool:
        """Whether this is a 1x1 convolution whose input is read by another branch too."""
        return self._is_pointwise(node) and len(self.consumers[call.inputs[0]]) > 1

    def _is_pointwise(self, node: Node) -> bool:
        weight = ConvolutionCall.of(node).weight
        kernel = weight.shape[2:] if isinstance(weight, Tensor) else (0,)
        return all(size == 1 for size in kernel)

    def settle_norms(self) -> None:
        """Puts gates before the batch norm where the convolution and the batch norm are not always used together."""
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
