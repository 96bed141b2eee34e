"""What a call of a compiled network must be given: tensors like those of the example that it was compiled with."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from sanp.core.errors import SanpError
from sanp.core.modules import as_arguments
from sanp.engine.arguments import bound


class WantedInputs:
    """Checks the arguments of calls.

    ``reference`` is the network, ``example`` an input of it as :func:`sanp.compile` takes it. With ``in_steps`` the
    network runs in steps that were written for the example; without, the network itself computes, and takes more.
    """

    def __init__(self, reference: nn.Module, example: Any, *, in_steps: bool) -> None:
        self._reference, self._in_steps = reference, in_steps
        shapes = tree_map(lambda leaf: leaf.to("meta") if isinstance(leaf, Tensor) else leaf, example)
        self._example = bound(reference, *as_arguments(shapes))
        self.leaves = [leaf for leaf in tree_leaves(self._example) if isinstance(leaf, Tensor)]
        """the example's tensors, without their numbers"""
        self.is_one_tensor = isinstance(example, Tensor)

    def taken_from(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Tensor], bool]:
        """The tensors of a call's arguments in the order of the example's, and whether numpy arrays were given.

        Raises an error for arguments that are not like the example's in all but the size of the batch.
        """
        # Looking at a signature takes longer than a check.
        one = self.is_one_tensor and len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
        leaves = list(args) if one else self._in_order(args, kwargs)
        if len(leaves) != len(self.leaves):
            raise SanpError(f"{len(leaves)} tensors were given: this network takes {len(self.leaves)}")
        wants_numpy = any(isinstance(leaf, np.ndarray) for leaf in leaves)
        tensors = [_as_tensor(leaf, like.dtype) for leaf, like in zip(leaves, self.leaves, strict=True)]
        for tensor, like in zip(tensors, self.leaves, strict=True):
            if tensor.shape[1:] != like.shape[1:] or tensor.dim() != like.dim():
                wanted = ", ".join(map(str, like.shape[1:]))
                raise SanpError(
                    f"an input of shape {tuple(tensor.shape)} was given: wanted is (N, {wanted}), as the example_input "
                    "was; compile again with an example of the new size"
                )
        if self._in_steps and len({len(tensor) for tensor in tensors}) > 1:
            raise SanpError(f"inputs of batch sizes {[len(t) for t in tensors]} were given: all must have the same")
        return tensors, wants_numpy

    def _in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors in the order of the example's; what is no tensor must be as it was there."""
        given = bound(self._reference, args, kwargs)
        if given.keys() != self._example.keys():
            raise SanpError(
                f"arguments {list(given)} were given: this network was compiled with {list(self._example)}; compile "
                "again with an example_input of these"
            )
        leaves: list[Any] = []
        for name, value in self._example.items():
            parts, wanted = tree_leaves(given[name]), tree_leaves(value)
            tensors = [part for part in parts if isinstance(part, Tensor | np.ndarray)]
            rest = [part for part in parts if not isinstance(part, Tensor | np.ndarray)]
            fixed = [part for part in wanted if not isinstance(part, Tensor)]
            same = len(rest) == len(fixed) and all(a is b or a == b for a, b in zip(rest, fixed, strict=True))
            if self._in_steps and not same:
                raise SanpError(
                    f"{name} was given {rest}: this network was compiled with {fixed}; compile again with an "
                    "example_input that has it"
                )
            leaves += tensors
        return leaves


def from_numpy(leaf: Any) -> Tensor:
    """A tensor, or a numpy array as one, outside of any gradient."""
    tensor: Tensor = torch.from_numpy(np.ascontiguousarray(leaf)) if isinstance(leaf, np.ndarray) else leaf.detach()
    return tensor


def _as_tensor(leaf: Any, dtype: torch.dtype) -> Tensor:
    tensor = from_numpy(leaf)
    if tensor.device.type != "cpu":
        raise SanpError(f"an input on {tensor.device} was given: a compiled network runs on the CPU; use x.cpu()")
    if tensor.layout != torch.strided:
        raise SanpError(f"an input with layout {tensor.layout} was given: give a dense one, as x.to_dense()")
    if tensor.dtype != dtype:
        raise SanpError(f"an input of {tensor.dtype} was given: wanted is {dtype}; use x.to({dtype})")
    result: Tensor = tensor.resolve_conj().resolve_neg().contiguous()  # memory that holds the numbers themselves
    return result
