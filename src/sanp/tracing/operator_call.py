"""An operator call with mask ids in place of its arguments, and two helpers that reduce ids along dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sanp.tracing.graph import Node
from sanp.tracing.masks import ZERO, MaskTable


@dataclass(frozen=True)
class OperatorCall:
    """What a rule of zero_rules.py gets: an operator call, and the mask ids of its arguments."""

    node: Node
    of: Callable[[Any], Tensor]
    """gives the mask id of each element of an argument"""
    masks: MaskTable
    """makes new ids"""
    shapes: Sequence[torch.Size]
    """of every value of the trace, by its index"""

    @property
    def shape(self) -> torch.Size:
        """The shape of the first output."""
        out = self.node.outputs[0]
        assert out is not None
        return self.shapes[out.index]


def constant_along(masks: Tensor, dims: list[int]) -> Tensor | None:
    """The ids without the dimensions ``dims``, if they are constant along each of them; else None."""
    for dim in sorted((dim % masks.dim() for dim in dims), reverse=True):
        head = masks.narrow(dim, 0, 1)
        if masks.stride(dim) != 0 and not bool((masks == head).all()):
            return None
        masks = head.squeeze(dim)
    return masks


def joined_along(masks: Tensor, dims: list[int]) -> Tensor | None:
    """As :func:`constant_along`, but always-zero elements are ignored: a border of zeros changes no channel's mask."""
    for dim in sorted((dim % masks.dim() for dim in dims), reverse=True):
        head = masks.narrow(dim, 0, 1)
        if masks.stride(dim) != 0 and not bool((masks == head).all()):
            head = masks.amax(dim, keepdim=True)
            if not bool(((masks == head) | (masks == ZERO)).all()):
                return None
        masks = head.squeeze(dim)
    return masks
