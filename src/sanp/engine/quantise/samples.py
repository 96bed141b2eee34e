"""The samples that int8 is calibrated on, as the user gave them: one large batch, or a loader of batches."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sanp.core.errors import SanpError
from sanp.core.modules import tensors_in
from sanp.engine.arguments import in_order
from sanp.gating.thresholds import batches_of

FEWEST = 16
"""samples that ranges are found from"""
ENOUGH = 512
"""samples after which no more batches of a loader are taken"""


def samples_of(calibration: Any, network: nn.Module, example: Any) -> Any:
    """The samples as one call of ``network`` takes them; an error if they are unlike ``example``."""
    if not isinstance(calibration, Tensor | tuple | dict | type(example)) and isinstance(calibration, Iterable):
        calibration = _joined(calibration, len(tensors_in(example)))
    samples = in_order(network, calibration)
    tensors, like = tensors_in(samples), tensors_in(example)
    if not tensors or len(tensors) != len(like):
        raise SanpError(
            f"calibration holds {len(tensors)} tensors and example_input {len(like)}: give samples as the network "
            "takes them"
        )
    for tensor, wanted in zip(tensors, like, strict=True):
        if tensor.dim() != wanted.dim() or tensor.shape[1:] != wanted.shape[1:] or tensor.dtype != wanted.dtype:
            raise SanpError(
                f"calibration has samples of shape {tuple(tensor.shape[1:])} and {tensor.dtype}: wanted is "
                f"{tuple(wanted.shape[1:])} and {wanted.dtype}, as in example_input"
            )
        if len(tensor) < FEWEST or len(tensor) != len(tensors[0]):
            raise SanpError(
                f"calibration has {len(tensor)} samples: ranges want at least {FEWEST}; some hundred training images "
                "are usual"
            )
        if not bool(tensor.isfinite().all()):
            raise SanpError("calibration holds numbers that are NaN or infinite: leave those samples out")
    if all(float((tensor - tensor[:1]).abs().max()) == 0 for tensor in tensors):
        raise SanpError("calibration holds the same sample many times: ranges want different ones")
    return samples


def _joined(batches: Iterable[Any], inputs: int) -> Any:
    """The first batches of a loader as one; labels behind ``inputs`` tensors are left out."""
    taken: list[Any] = []
    count = 0
    for batch in batches:
        taken += batches_of([batch], inputs)
        count += len(tensors_in(taken[-1])[0])
        if count >= ENOUGH:
            break
    if not taken:
        raise SanpError("calibration holds no batches: some hundred training images are usual")
    try:
        return tree_map(lambda *parts: torch.cat(parts), *taken)
    except (RuntimeError, ValueError, TypeError) as error:
        raise SanpError(f"calibration has batches that do not go together ({error}): give them alike") from error
