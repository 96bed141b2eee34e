"""The tensors of a network as a file has them, and back: tied weights once, rows and columns of zeros not at all."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError, shown
from sanp.core.zero_packing import Packing, packed, packing_of, unpack_into, unpacked_shape


def tensors_of(
    net: nn.Module, dtype: torch.dtype | None, *, pack: bool, left_out: Collection[str] = ()
) -> tuple[dict[str, Tensor], dict[str, Packing]]:
    """The tensors of a network by name, and how some of them are packed.

    ``dtype`` is the number format of kernels and matrices; None keeps theirs. ``pack`` leaves out rows and columns of
    zeros. Tensors named in ``left_out`` are not among them.
    """
    tensors: dict[str, Tensor] = {}
    packings: dict[str, Packing] = {}
    seen: set[tuple[int, int, torch.Size]] = set()
    for name, tensor in net.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise SanpError(f"{name} of {type(net).__name__} is {type(tensor).__name__}: only tensors can be saved")
        same = (tensor.data_ptr(), int(tensor.storage_offset()), tensor.shape)
        if name in left_out or (same in seen and tensor.numel() > 0):
            continue  # tied weights are written once
        seen.add(same)
        # Tensors of one dimension are small, and a batch norm's variance may exceed the range of half precision.
        matrix = dtype is not None and tensor.is_floating_point() and tensor.dim() > 1
        cast = tensor.to(dtype) if matrix else tensor
        packing = packing_of(tensor) if pack else None
        if packing is not None:
            packings[name] = packing
            cast = packed(cast, packing)
        tensors[name] = cast.detach().contiguous().cpu()
    return tensors, packings


def fill_network(
    net: nn.Module,
    tensors: Mapping[str, Tensor],
    packings: Mapping[str, Packing],
    path: Any,
    *,
    left_out: Collection[str] = (),
) -> None:
    """Copies tensors into a network; an error names the first one whose name or shape does not fit.

    ``packings`` are those of the tensors whose rows and columns of zeros are not in the file ``path``. Tensors of the
    network that are named in ``left_out`` stay as they are.
    """
    own = {name: tensor for name, tensor in net.state_dict(keep_vars=True).items() if name not in left_out}
    for name, tensor in tensors.items():
        if name not in own:
            raise SanpError(
                f"{path} holds a tensor {name!r} that {type(net).__name__} does not have: "
                "give the network it was saved from"
            )
        shape = tuple(tensor.shape) if name not in packings else unpacked_shape(tensor, packings[name])
        if tuple(own[name].shape) != shape:
            raise SanpError(
                f"{path}: tensor {name!r} is {shape or 'packed wrongly'}, and {type(net).__name__} "
                f"wants {tuple(own[name].shape)}: "
                "give the network it was saved from (as many classes, as many channels)"
            )
        if own[name].is_floating_point() != tensor.is_floating_point() or tensor.is_complex():
            wanted = f"{type(net).__name__} wants {own[name].dtype}"
            raise SanpError(f"{path}: tensor {name!r} is {tensor.dtype}, and {wanted}: save it again with sanp.save")
    if (without := next((name for name in packings if name not in tensors), None)) is not None:
        raise SanpError(f"{path}: the header packs {shown(without)}, and the file has no such tensor: save it again")
    filled = {own[name].data_ptr() for name in tensors}
    missing = [name for name, tensor in own.items() if name not in tensors and tensor.data_ptr() not in filled]
    if missing:
        raise SanpError(f"{path} lacks the tensor {missing[0]!r} of {type(net).__name__} ({len(missing)} in all)")
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name in packings:
                unpack_into(own[name], tensor, packings[name])
            else:
                own[name].copy_(tensor)
