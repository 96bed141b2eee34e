"""Outputs of networks that give more than one tensor: which of them are the logits of a classifier."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def logits_of(output: Any) -> Any:
    """The logits in a classifier's output: the output itself, what it calls ``logits``, or the first of a tuple.

    An output without any of these is returned as it is.
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        return output.get("logits", output)
    if hasattr(output, "logits"):
        return output.logits
    first = output[0] if isinstance(output, tuple | list) and output else None
    return first if isinstance(first, Tensor) else output


def are_classes(output: Any, target: Any) -> bool:
    """Whether these are logits (N, classes, ...) and a class number for each of their places (N, ...)."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or target.is_floating_point():
        return False
    return output.dim() >= 2 and output.shape[:1] + output.shape[2:] == target.shape
