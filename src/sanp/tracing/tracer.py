"""Runs a network once and records which operators it called, on which tensors and inside which modules.

The trace holds what PyTorch executed (aten operators), so control flow, wrappers and functional calls make no
difference. After an in-place operator a tensor has a new value; a tensor that shares its memory gets a new value when
it is next used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from sanp.core.errors import SanpError
from sanp.core.modules import call_with, evaluating, tensors_in
from sanp.tracing.graph import ALIASED, WRITTEN, ModuleCall, Node, Region, Trace, Value
from sanp.tracing.readback import Methods, depends_on_numbers


def trace_forward(network: nn.Module, example: Any) -> Trace:
    """The trace of one forward of ``network`` in evaluation mode; afterwards every module has its earlier mode.

    ``example`` is what the forward takes: a tensor, a tuple of arguments or a dict of keyword arguments.
    """
    inputs = tensors_in(example)
    if not inputs:
        raise SanpError(
            f"example_input {type(example).__name__} holds no tensor: give what the network's forward takes "
            "(a tensor, a tuple of arguments or a dict of keywords)"
        )
    tracer = _Tracer()
    tracer.trace.learned.update(map(id, [*network.parameters(), *network.buffers()]))
    tracer.trace.inputs = tuple(tracer.new_value(tensor) for tensor in inputs)
    with evaluating(network), _watched(network, tracer), torch.no_grad():
        try:
            with Methods(tracer.trace.read_back.append, tracer.is_traced), tracer:
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
    tracer.trace.result = result
    return tracer.trace


class _Tracer(TorchDispatchMode):
    """Records each operator as it runs. It keeps all tensors alive, so that no two of them have the same identity."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace()
        self.stack: list[int] = []
        self._value_of: dict[int, tuple[Value, int]] = {}
        """identity of a tensor to its value, and how many writes to its memory that value includes"""
        self._alive: list[Any] = []
        self._memory: dict[int, list[tuple[Value, Region]]] = {}
        """address of a memory that depends on the network's input to the writes to it, in order"""

    def new_value(self, tensor: Tensor) -> Value:
        """Makes a new value for a tensor, which replaces the earlier one if it has one."""
        value = Value(len(self.trace.shapes))
        self.trace.shapes.append(tensor.shape)
        self.trace.dtypes.append(tensor.dtype)
        if id(tensor) not in self._value_of:
            self._alive.append(tensor)
        self._value_of[id(tensor)] = value, len(self._memory.setdefault(_memory(tensor), []))
        return value

    def is_traced(self, tensor: Tensor) -> bool:
        """Whether a tensor depends on the network's input."""
        return _memory(tensor) in self._memory

    def values_in(self, tree: Any) -> tuple[Value, ...]:
        """The values of the tensors in a structure of lists, tuples, dicts and objects."""
        current = (self._current(tensor) for tensor in tensors_in(tree))
        return tuple(value for value in current if isinstance(value, Value))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        node_args, node_kwargs = tree_map(self._current, (args, kwargs))
        result = func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self.trace.drawn.append(func.overloadpacket.__name__)
        if not any(isinstance(leaf, Value) for leaf in tree_leaves((node_args, node_kwargs))):
            self._alive.append(result)
            if any(id(leaf) in self.trace.learned for leaf in tree_leaves((args, kwargs))):
                self.trace.learned.update(map(id, tree_leaves(result)))
            return result
        outputs = tuple(self.new_value(leaf) if isinstance(leaf, Tensor) else None for leaf in tree_flatten(result)[0])
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else str(func)
        if name == "_convolution":  # of a module that torch.jit.trace has made; settings of the GPU's library follow
            name, node_args, func = "convolution", node_args[:9], torch.ops.aten.convolution.default
        self._add(name, tuple(node_args), node_kwargs, outputs, func)
        if depends_on_numbers(func, args, self.is_traced):
            self.trace.read_back.append("item" if name == "_local_scalar_dense" else name)
        for tensor in _written(func, args, kwargs):
            self._note_write(tensor, result)
        return result

    def _add(self, op: str, args: tuple[Any, ...], kwargs: Any, outputs: tuple[Value | None, ...], func: Any) -> None:
        call = self.stack[-1] if self.stack else 0
        self.trace.nodes.append(Node(op, call, args, kwargs, outputs, func))

    def _current(self, leaf: Any) -> Any:
        """The present value of a tensor, after all writes to its memory; any other leaf as it is."""
        memory = _memory(leaf) if isinstance(leaf, Tensor) else None
        if memory not in self._memory:
            return leaf
        writes = self._memory[memory]
        before, seen = self._value_of.get(id(leaf), (None, 0))
        if before is not None and seen == len(writes):
            return before
        if not writes:
            self._add(ALIASED, (), {}, (self.new_value(leaf),), None)
        elif before is None:
            with _disable_current_modes():
                before = leaf.clone()  # the parts that were not written are constant
        for written, over in writes[seen:]:
            after = self.new_value(leaf)
            self._add(WRITTEN, (before, written), {"region": _region(leaf), "over": over}, (after,), _already_written)
            before = after
        return self._value_of[id(leaf)][0]

    def _note_write(self, tensor: Tensor, result: Any) -> None:
        """Records that an in-place operator has written a tensor, for other tensors that share its memory."""
        if not any(leaf is tensor for leaf in tree_leaves(result)):
            self._add(ALIASED, (), {}, (self.new_value(tensor),), None)
        value, _ = self._value_of[id(tensor)]
        writes = self._memory[_memory(tensor)]
        writes.append((value, _region(tensor)))
        self._value_of[id(tensor)] = value, len(writes)


def _memory(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):  # a tensor without such a storage, for example a sparse one
        return id(tensor)


def _already_written(before: Tensor, written: Tensor, *, region: Region, over: Region) -> Tensor:
    """Where both still lie in one memory, the operator that wrote has changed the tensor too."""
    if before.numel() and _memory(before) != _memory(written):
        raise RuntimeError("a write to part of a memory that is not shared any more")
    return before


def _region(tensor: Tensor) -> Region:
    return Region(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors among the arguments that an operator writes in place."""
    given = [
        args[position] if position < len(args) else kwargs.get(argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [tensor for tensor in given if isinstance(tensor, Tensor)]


@contextmanager
def _watched(network: nn.Module, tracer: _Tracer) -> Iterator[None]:
    """Inside, hooks tell the tracer which module is running."""
    calls = tracer.trace.calls

    def enter(path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        parent = tracer.stack[-1] if tracer.stack else -1
        given = tracer.values_in((args, kwargs))  # may add nodes, of writes before the call
        calls.append(ModuleCall(path, module, parent, given, first_node=len(tracer.trace.nodes)))
        tracer.stack.append(len(calls) - 1)

    def leave(args: Any, kwargs: Any, output: Any) -> None:
        call = calls[tracer.stack.pop()]
        call.is_plain = isinstance(output, Tensor) and isinstance(next(iter((*args, *kwargs.values())), None), Tensor)
        call.outputs = tracer.values_in(output)
        call.end_node = len(tracer.trace.nodes)

    handles = []
    for path, module in network.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue  # it takes no hooks; the operators inside count as those of its caller
        handles += [
            module.register_forward_pre_hook(
                lambda module, args, kwargs, path=path: enter(path, module, args, kwargs), with_kwargs=True
            ),
            module.register_forward_hook(
                lambda module, args, kwargs, output: leave(args, kwargs, output), with_kwargs=True
            ),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
