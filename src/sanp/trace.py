"""Runs a network once and writes down which operators it called, on what, inside which module: no source is read.

The trace sees what PyTorch executes (aten operators), so control flow, wrappers and functional calls make no
difference. In-place operators give a new value; whatever else shares the memory they write becomes unknown.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from sanp.errors import SanpError

ALIASED = "aliased"
"""The operator name of a value whose memory was written through another tensor: nothing is known of it."""


@dataclass(frozen=True)
class Value:
    """A tensor of the forward that depends on the network's input, named by a number."""

    index: int


@dataclass(frozen=True)
class Node:
    """One operator call: where arguments depend on the input, a :class:`Value` stands in for the tensor."""

    op: str
    call: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Value | None, ...]
    func: Any = field(repr=False)

    def inputs(self) -> list[Value]:
        """The values among the arguments."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Value)]


@dataclass
class ModuleCall:
    """One call of one module: what went in, what came out, which nodes ran directly or deeper inside it."""

    path: str
    module: nn.Module
    parent: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...] = ()
    first_node: int = 0
    end_node: int = 0


@dataclass
class Trace:
    """One forward: nodes in order of execution, the module calls around them, and every value's shape."""

    nodes: list[Node] = field(default_factory=list)
    calls: list[ModuleCall] = field(default_factory=list)
    shapes: list[torch.Size] = field(default_factory=list)
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()

    def consumers(self) -> dict[Value, list[int]]:
        """The nodes that read each value."""
        found: dict[Value, list[int]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            for value in dict.fromkeys(node.inputs()):
                found[value].append(index)
        return found


def call_with(network: nn.Module, example: Any) -> Any:
    """Calls the network with an example: a tuple is its arguments, a dict its keywords, anything else its one input."""
    if isinstance(example, tuple):
        return network(*example)
    if isinstance(example, dict):
        return network(**example)
    return network(example)


def trace(network: nn.Module, example: Any) -> Trace:
    """The trace of one forward of ``network`` in evaluation mode; its training flags are put back afterwards."""
    inputs = [leaf for leaf in tree_leaves(example) if isinstance(leaf, Tensor)]
    if not inputs:
        raise SanpError(
            f"example_input {type(example).__name__} holds no tensor: give what the network's forward takes "
            "(a tensor, a tuple of arguments or a dict of keywords)"
        )
    tracer = _Tracer()
    tracer.trace.inputs = tuple(tracer.new_value(tensor) for tensor in inputs)
    with evaluating(network), _watched(network, tracer), torch.no_grad():
        try:
            with tracer:
                result = call_with(network, example)
        except SanpError:
            raise
        except Exception as error:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in inputs)
            raise SanpError(
                f"{type(network).__name__} does not run on the example_input of shape {shapes} "
                f"({type(error).__name__}: {error}): give an example that its forward takes"
            ) from error
    tracer.trace.outputs = tracer.values_in(result)
    return tracer.trace


class _Tracer(TorchDispatchMode):
    """Sees each operator as it runs and keeps every tensor alive, so that an identity names one tensor only."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace()
        self.stack: list[int] = []
        self._value_of: dict[int, Value] = {}
        self._alive: list[Any] = []
        self._sharing: dict[int, list[Tensor]] = defaultdict(list)

    def new_value(self, tensor: Tensor) -> Value:
        """Names a tensor, or renames one that was written in place."""
        value = Value(len(self.trace.shapes))
        self.trace.shapes.append(tensor.shape)
        if id(tensor) not in self._value_of:
            self._alive.append(tensor)
            self._sharing[_storage(tensor)].append(tensor)
        self._value_of[id(tensor)] = value
        return value

    def values_in(self, tree: Any) -> tuple[Value, ...]:
        """The values among the leaves of a structure, objects with attributes (as of dataclasses) included."""
        leaves = tree_leaves(tree)
        if len(leaves) == 1 and not isinstance(leaves[0], Tensor) and hasattr(leaves[0], "__dict__"):
            leaves = tree_leaves(list(vars(leaves[0]).values()))
        return tuple(self._value_of[id(leaf)] for leaf in leaves if id(leaf) in self._value_of)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        depends = any(id(leaf) in self._value_of for leaf in leaves)
        if not depends:
            result = func(*args, **kwargs)
            self._alive.append(result)
            return result
        node_args, node_kwargs = tree_map(self._stand_in, (args, kwargs))
        result = func(*args, **kwargs)
        outputs = tuple(self.new_value(leaf) if isinstance(leaf, Tensor) else None for leaf in tree_flatten(result)[0])
        call = self.stack[-1] if self.stack else 0
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else str(func)
        self.trace.nodes.append(Node(name, call, tuple(node_args), node_kwargs, outputs, func))
        self._forget_aliases_of_written(func, args, kwargs, call)
        return result

    def _stand_in(self, leaf: Any) -> Any:
        return self._value_of.get(id(leaf), leaf) if isinstance(leaf, Tensor) else leaf

    def _forget_aliases_of_written(self, func: Any, args: Any, kwargs: Any, call: int) -> None:
        """After an in-place operator, other tensors over the same memory hold something new that no node made."""
        for position, argument in enumerate(func._schema.arguments):
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            if argument.alias_info is None or not argument.alias_info.is_write or not isinstance(given, Tensor):
                continue
            for other in self._sharing[_storage(given)]:
                if other is not given:
                    stale = self.new_value(other)
                    self.trace.nodes.append(Node(ALIASED, call, (), {}, (stale,), None))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, each module's own mode back afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _watched(network: nn.Module, tracer: _Tracer) -> Iterator[None]:
    """Hooks that tell the tracer which module is running."""
    calls = tracer.trace.calls

    def enter(path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        parent = tracer.stack[-1] if tracer.stack else -1
        start = len(tracer.trace.nodes)
        calls.append(ModuleCall(path, module, parent, tracer.values_in((args, kwargs)), first_node=start))
        tracer.stack.append(len(calls) - 1)

    def leave(output: Any) -> None:
        call = calls[tracer.stack.pop()]
        call.outputs = tracer.values_in(output)
        call.end_node = len(tracer.trace.nodes)

    handles = []
    for path, module in network.named_modules():
        handles += [
            module.register_forward_pre_hook(
                lambda module, args, kwargs, path=path: enter(path, module, args, kwargs), with_kwargs=True
            ),
            module.register_forward_hook(lambda module, args, output: leave(output)),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
