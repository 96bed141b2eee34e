"""A second device that needs no hardware: tensors that say they are on ``meta``, compute on the CPU, and refuse to be
mixed with tensors of the CPU, as a GPU does."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NAME = "meta"
aten = torch.ops.aten
MOVES = {aten._to_copy.default, aten.copy_.default, aten._local_scalar_dense.default}
"""operators that may see both devices"""


class There(Tensor):
    """A tensor on the other device; ``here`` is what it holds."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "There":
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, here.shape, strides=here.stride(), storage_offset=here.storage_offset(), dtype=here.dtype, device=NAME
        )
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:
        return f"There({self.here!r})"


def run(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Runs an operator on what the tensors hold; the result is on the device of its arguments, or on the one named."""
    tensors: list[Tensor] = []
    tree_map(lambda leaf: tensors.append(leaf) if isinstance(leaf, Tensor) else None, (args, kwargs))
    there = any(isinstance(each, There) for each in tensors)
    here = [each for each in tensors if not isinstance(each, There) and each.dim() > 0]
    if there and here and op not in MOVES:
        raise RuntimeError(f"{op} mixes devices: a tensor {tuple(here[0].shape)} is on the CPU")
    target = kwargs.get("device")
    if target is not None:
        there = torch.device(target).type == NAME
        kwargs = {**kwargs, "device": torch.device("cpu")}
    elif op is aten.copy_.default:
        there = isinstance(args[0], There)
    elif op is aten._local_scalar_dense.default:
        there = False
    owners = {id(each.here): each for each in tensors if isinstance(each, There)}
    bare = tree_map(lambda leaf: leaf.here if isinstance(leaf, There) else leaf, (args, kwargs))
    result = op(*bare[0], **bare[1])
    if op is aten._to_copy.default and there and isinstance(result, Tensor) and id(result) in owners:
        result = result.clone()

    def wrapped(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not there:
            return leaf
        owner = owners.get(id(leaf))
        return There(leaf) if owner is None else owner

    return tree_map(wrapped, result)


class OtherDevice(TorchDispatchMode):
    """Inside, ``tensor.to("meta")`` and ``torch.zeros(..., device="meta")`` make tensors of the other device."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})
