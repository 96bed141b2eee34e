"""Checks the batches of a loader, and says in words why a network or a loss cannot take one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.modules import evaluating


def input_and_target(batch: Any) -> tuple[Tensor, Any]:
    """The input and the target of a batch; an error if it is not such a pair, or has no image."""
    if not isinstance(batch, tuple | list) or len(batch) != 2 or not isinstance(batch[0], Tensor):
        given = f"{len(batch)} things" if isinstance(batch, tuple | list) else f"a {type(batch).__name__}"
        raise SanpError(f"the loader gave {given} for a batch: give pairs of images and targets, the images a tensor")
    if batch[0].dim() == 0 or not len(batch[0]):
        raise SanpError(f"the loader gave a batch of shape {tuple(batch[0].shape)}: give at least one image a batch")
    return batch[0], batch[1]


@contextmanager
def bad_batch_explained(net: nn.Module, x: Tensor, y: Any) -> Iterator[None]:
    """Inside, an error that a bad batch caused becomes one that says what is wrong with the batch.

    ``net`` is the network that runs inside, ``x`` its input and ``y`` the target. Any other error is raised as it is.
    """
    try:
        yield
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        if isinstance(error, SanpError) or (why := _why(net, x, y, error)) is None:
            raise
        raise SanpError(why) from error


def _why(net: nn.Module, x: Tensor, y: Any, error: Exception) -> str | None:
    shape = tuple(x.shape)
    if "more than 1 value per channel" in str(error):
        return f"a batch of {shape} has one value a channel under batch norm: give at least 2 images a batch"
    try:
        with evaluating(net), torch.no_grad():
            output = net(x[:2])
    except Exception as inner:
        return (
            f"{type(net).__name__} does not run on images of {described(x)} "
            f"({' '.join(str(inner).split())[:150]}): give images such as it was made for"
        )
    if isinstance(output, Tensor) and output.dim() == 2 and isinstance(y, Tensor):
        return why_not_labels(y, len(x), output.shape[1])
    return None


def described(value: object) -> str:
    """The dtype and shape of a tensor, or the type of any other value, for an error message."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def why_not_labels(y: Tensor, count: int, classes: int) -> str | None:
    """What is wrong with the labels ``y`` of ``count`` images; None if nothing is.

    ``classes`` is the number of classes that the network knows.
    """
    if y.dtype not in (torch.int64, torch.uint8) or y.dim() != 1 or len(y) != count:
        return f"labels are {described(y)} for {count} images: give an int64 tensor, one class number an image"
    if int(y.min()) < 0 or int(y.max()) >= classes:
        return (
            f"labels go from {int(y.min())} to {int(y.max())}, but the network has {classes} classes: "
            f"give labels from 0 to {classes - 1}"
        )
    return None
