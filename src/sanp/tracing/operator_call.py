"""One operator call as a rule sees it: columns (liveness.py) instead of numbers, and what is the same along them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sanp.tracing.graph import Node
from sanp.tracing.masks import ZERO, Columns


@dataclass(frozen=True)
class Step:
    """An operator call as a rule sees it: the columns of its arguments, and where new columns are made."""

    node: Node
    of: Callable[[Any], Tensor]
    columns: Columns
    shapes: Sequence[torch.Size]

    @property
    def shape(self) -> torch.Size:
        """Of the first output."""
        out = self.node.outputs[0]
        assert out is not None
        return self.shapes[out.index]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument that may have been given by position or by name."""
        args = self.node.args
        return args[position] if len(args) > position else self.node.kwargs.get(name, default)


def constant_along(columns: Tensor, dims: list[int]) -> Tensor | None:
    """The columns without these dimensions, if they are the same all along them; else None."""
    for dim in sorted((dim % columns.dim() for dim in dims), reverse=True):
        head = columns.narrow(dim, 0, 1)
        if columns.stride(dim) != 0 and not bool((columns == head).all()):
            return None
        columns = head.squeeze(dim)
    return columns


def joined_along(columns: Tensor, dims: list[int]) -> Tensor | None:
    """As :func:`constant_along`, where zeros between do not count: a border of zeros makes no channel live."""
    for dim in sorted((dim % columns.dim() for dim in dims), reverse=True):
        head = columns.narrow(dim, 0, 1)
        if columns.stride(dim) != 0 and not bool((columns == head).all()):
            head = columns.amax(dim, keepdim=True)
            if not bool(((columns == head) | (columns == ZERO)).all()):
                return None
        columns = head.squeeze(dim)
    return columns
