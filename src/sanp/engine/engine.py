"""The compiled network: a list of native and torch steps behind one call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

from sanp.engine.library import NativeProgram
from sanp.engine.plan import Plan
from sanp.errors import SanpError
from sanp.trace import Node, Value

Values = dict[Value, Tensor]


@dataclass(frozen=True)
class NativeStep:
    """One call of the native library."""

    program: NativeProgram
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    shapes: tuple[tuple[int, ...], ...]
    """of the outputs, without the batch"""
    threads: int

    def run(self, values: Values, batch: int) -> bytes:
        """Adds the outputs to ``values``; gives a byte for each sample, 0 if it held NaN or infinity."""
        given = [values[value].to(torch.float32).contiguous() for value in self.inputs]
        made = [torch.empty(batch, *shape) for shape in self.shapes]
        finite = self.program.run_at([x.data_ptr() for x in given], [y.data_ptr() for y in made], batch, self.threads)
        values.update(zip(self.outputs, made, strict=True))
        return finite


@dataclass(frozen=True)
class TorchStep:
    """Operators that run in torch, as they were traced but for the size of the batch."""

    nodes: tuple[Node, ...]
    traced_batch: int

    def run(self, values: Values, batch: int) -> bytes:
        """Adds everything that the operators make to ``values``; torch needs no second try at what is not finite."""
        for node in self.nodes:
            args, kwargs = tree_map(
                lambda leaf: values[leaf] if isinstance(leaf, Value) else leaf, (node.args, node.kwargs)
            )
            if node.op in ("view", "_unsafe_view", "reshape", "expand", "new_zeros", "repeat"):
                args = tuple(self._resized(argument, batch) for argument in args)
            made = node.func(*args, **kwargs)
            for value, leaf in zip(node.outputs, tree_flatten(made)[0], strict=True):
                if value is not None:
                    values[value] = leaf
        return b"\1" * batch

    def _resized(self, argument: Any, batch: int) -> Any:
        """A size whose first number counts samples, or positions of all samples, for another batch.

        Whether it does is not known here; the check of the compiled network decides.
        """
        if isinstance(argument, list) and argument and argument[0] > 0 and argument[0] % self.traced_batch == 0:
            return [argument[0] // self.traced_batch * batch, *argument[1:]]
        return argument


class Engine:
    """A network that computes only the open channels; called like the network it was compiled from.

    Takes and gives torch tensors, or numpy arrays if it is given those; any batch size; from any thread.
    """

    def __init__(
        self,
        reference: nn.Module,
        steps: Sequence[NativeStep | TorchStep],
        *,
        inputs: Sequence[Value],
        input_shapes: Sequence[tuple[int, ...]],
        outputs: Sequence[Value],
        structure: TreeSpec,
        plan: Plan,
    ) -> None:
        self.plan = plan
        self._reference = reference
        self._steps = tuple(steps)
        self._inputs, self._input_shapes = tuple(inputs), tuple(input_shapes)
        self._outputs, self._structure = tuple(outputs), structure
        self._single = structure.is_leaf()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the network in evaluation mode."""
        with torch.no_grad():
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors, wants_numpy = self._checked(args, kwargs)
        back: Callable[[Tensor], Any] = (lambda y: y.numpy()) if wants_numpy else (lambda y: y)
        if not self._steps:
            result = self._in_torch(args, kwargs, None)
            return tree_map(lambda leaf: back(leaf) if isinstance(leaf, Tensor) else leaf, result)
        values: Values = dict(zip(self._inputs, tensors, strict=True))
        batch = len(tensors[0])
        suspect: set[int] = set()
        for step in self._steps:
            finite = step.run(values, batch)
            if 0 in finite:
                suspect.update(row for row, flag in enumerate(finite) if not flag)
        results = [values[value] for value in self._outputs]
        if suspect:
            # Zero times NaN or infinity is not zero, so for these samples every channel has to be computed.
            rows = torch.tensor(sorted(suspect))
            for result, exact in zip(results, tree_leaves(self._in_torch(args, kwargs, rows)), strict=True):
                result[rows] = exact
        if self._single:
            return back(results[0])
        return tree_unflatten([back(result) for result in results], self._structure)

    def _in_torch(self, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Tensor | None) -> Any:
        """The network itself, on all samples or some of them."""

        def given(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor | np.ndarray):
                return leaf
            return _as_tensor(leaf) if rows is None else _as_tensor(leaf)[rows]

        args, kwargs = tree_map(given, (args, kwargs))
        return self._reference(*args, **kwargs)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Tensor], bool]:
        one = (
            len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
        )  # flattening a tree takes longer than a check
        leaves = (
            args if one else [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor | np.ndarray)]
        )
        if len(leaves) != len(self._input_shapes):
            raise SanpError(f"{len(leaves)} tensors were given: this network takes {len(self._input_shapes)}")
        wants_numpy = any(isinstance(leaf, np.ndarray) for leaf in leaves)
        tensors = [_as_tensor(leaf) for leaf in leaves]
        for tensor, shape in zip(tensors, self._input_shapes, strict=True):
            if tensor.shape[1:] != shape or tensor.dim() == 0:
                wanted = ", ".join(map(str, shape))
                raise SanpError(
                    f"an input of shape {tuple(tensor.shape)} was given: wanted is (N, {wanted}), as the example_input "
                    "was; compile again with an example of the new size"
                )
        if len({len(tensor) for tensor in tensors}) > 1:
            raise SanpError(f"inputs of batch sizes {[len(t) for t in tensors]} were given: all must have the same")
        return tensors, wants_numpy


def _as_tensor(leaf: Any) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(leaf)) if isinstance(leaf, np.ndarray) else leaf.detach()
    if tensor.device.type != "cpu":
        raise SanpError(f"an input on {tensor.device} was given: a compiled network runs on the CPU; use x.cpu()")
    if tensor.layout != torch.strided:
        raise SanpError(f"an input with layout {tensor.layout} was given: give a dense one, as x.to_dense()")
    if tensor.dtype != torch.float32:
        raise SanpError(f"an input of {tensor.dtype} was given: wanted is torch.float32; use x.float()")
    result: Tensor = tensor.contiguous()
    return result
