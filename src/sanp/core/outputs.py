"""Outputs of networks: which of several tensors are the logits of a classifier, and whether they are numbers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sanp.core.errors import SanpError


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


def check_output(output: Tensor) -> None:
    """Raises an error if a network gave NaN or infinity."""
    if not bool(torch.isfinite(output).all()):
        raise SanpError("the network's output is not finite: check the images for NaN, or the network's training")
