"""Packed tensors: rows and columns that are zero throughout are left out of a file, and come back when it is read."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sanp.core.errors import SanpError, shown

WORTH = 0.125
"""the share of a tensor's numbers that must be in such rows and columns for it to be packed"""


@dataclass(frozen=True)
class Packing:
    """Which rows and columns of a tensor (rows, columns, ...) a file holds; all others are zero."""

    rows: Tensor
    """boolean, one for each row of the whole tensor"""
    columns: Tensor
    """boolean, one for each column"""

    def as_header(self) -> dict[str, str]:
        """The packing as a file's header has it: a text of 0 and 1 for each side."""
        return {side: "".join("01"[bit] for bit in getattr(self, side).tolist()) for side in ("rows", "columns")}


def packing_of(tensor: Tensor) -> Packing | None:
    """How a tensor can be packed; None if it has less than two dimensions, or too little of it would be left out."""
    if tensor.dim() < 2 or not tensor.numel():
        return None
    used = tensor.reshape(*tensor.shape[:2], -1).ne(0).any(2)  # (rows, columns)
    rows, columns = used.any(1), used.any(0)
    left = int(rows.sum()) * int(columns.sum())
    return Packing(rows, columns) if left <= (1 - WORTH) * used.numel() else None


def packed(tensor: Tensor, packing: Packing) -> Tensor:
    """The rows and columns of a tensor that are not left out."""
    return tensor[packing.rows][:, packing.columns]


def unpack_into(whole: Tensor, small: Tensor, packing: Packing) -> None:
    """Fills ``whole`` with the numbers of ``small`` and with zeros; :func:`unpacked_shape` must be its shape."""
    rows, columns = (side.nonzero()[:, 0].to(whole.device) for side in (packing.rows, packing.columns))
    whole.zero_()
    whole[rows[:, None], columns] = small.to(whole)


def unpacked_shape(small: Tensor, packing: Packing) -> tuple[int, ...] | None:
    """The shape of the whole tensor that ``small`` is what is left of; None if the two do not fit."""
    left = (int(packing.rows.sum()), int(packing.columns.sum()))
    return (len(packing.rows), len(packing.columns), *small.shape[2:]) if small.shape[:2] == left else None


def checked_packings(given: Any) -> dict[str, Packing]:
    """The packings that a file's header has, by the name of the tensor; an error if they are anything else."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise SanpError(f"packed is {shown(given)}: wanted are rows and columns by name")
    return {str(name): _checked(name, each) for name, each in given.items()}


def _checked(name: str, given: Any) -> Packing:
    if not isinstance(given, dict):
        given = {}
    return Packing(_bits(name, given.get("rows")), _bits(name, given.get("columns")))


def _bits(name: str, side: Any) -> Tensor:
    if not isinstance(side, str) or not side or set(side) - {"0", "1"}:
        raise SanpError(f"packed of {shown(name)} is {shown(side)}: wanted are rows and columns, each of 0 and 1")
    return torch.tensor([bit == "1" for bit in side])
