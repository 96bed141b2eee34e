"""An operator call with its arguments replaced by mask ids, and two helpers that reduce ids along dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sanp.tracing.graph import Node
from sanp.tracing.masks import ZERO, MaskTable


@dataclass(frozen=True)
class OperatorCall:
    """An operator call as a rule sees it."""

    node: Node
    of: Callable[[Any], Tensor]
    """an argument to the mask id of each of its elements"""
    masks: MaskTable
    """where new ids are made"""
    shapes: Sequence[torch.Size]
    """of every value of the trace"""

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


def constant_along(masks: Tensor, dims: list[int]) -> Tensor | None:
    """The masks without these dimensions, if they are the same all along them; else None."""
    for dim in sorted((dim % masks.dim() for dim in dims), reverse=True):
        head = masks.narrow(dim, 0, 1)
        if masks.stride(dim) != 0 and not bool((masks == head).all()):
            return None
        masks = head.squeeze(dim)
    return masks


def joined_along(masks: Tensor, dims: list[int]) -> Tensor | None:
    """As :func:`constant_along`, where zeros between do not count: a border of zeros makes no channel live."""
    for dim in sorted((dim % masks.dim() for dim in dims), reverse=True):
        head = masks.narrow(dim, 0, 1)
        if masks.stride(dim) != 0 and not bool((masks == head).all()):
            head = masks.amax(dim, keepdim=True)
            if not bool(((masks == head) | (masks == ZERO)).all()):
                return None
        masks = head.squeeze(dim)
    return masks
