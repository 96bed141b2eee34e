"""A second device that needs no hardware: tensors that say they are on ``meta``, compute on the CPU, and refuse to be
mixed with tensors of the CPU, as a GPU does, and float64, as Apple's GPUs do."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NAME = "meta"
aten = torch.ops.aten
MOVES = {aten._to_copy.default, aten.copy_.default, aten._local_scalar_dense.default}
"""operators that may see both devices"""
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
"""operators whose indices may be on the CPU"""


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
    looked_at = (args[0], *args[2:]) if op in INDEXED else args
    beside: list[Tensor] = []
    tree_map(lambda leaf: beside.append(leaf) if isinstance(leaf, Tensor) else None, (looked_at, kwargs))
    here = [each for each in beside if not isinstance(each, There) and each.dim() > 0]
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
    if there and kwargs.get("dtype") == torch.float64:
        raise TypeError(f"{op} makes float64, which this device has not")
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

    def __enter__(self) -> Any:
        self._functions = _Functions()
        self._functions.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._functions.__exit__(*error)

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """What PyTorch does before any operator: ``torch.tensor`` of numbers, ``tolist``, where a tensor lies."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (Tensor.tolist, Tensor.data_ptr) and isinstance(args[0], There):
            return function(args[0].here)
        made_there = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == NAME
        if function is torch.tensor and made_there:
            return function(*args, **{**kwargs, "device": "cpu"}).to(NAME)
        return function(*args, **kwargs)


def installed(patch: pytest.MonkeyPatch) -> OtherDevice:
    """The other device in place of ``mps``: until the patch is undone, whatever asks for ``mps`` gets it."""
    from sanp.core import devices

    chosen = devices.chosen_device

    def other(name: str) -> torch.device:
        return torch.device(NAME) if name == "mps" else chosen(name)

    patch.setattr(devices, "WITHOUT_DOUBLE", {NAME})
    for module in [module for name, module in sys.modules.items() if name.startswith("sanp.")]:
        if getattr(module, "chosen_device", None) is chosen:
            patch.setattr(module, "chosen_device", other)
    return OtherDevice()
