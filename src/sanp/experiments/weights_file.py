"""Weights from anybody's safetensors file, put into a network wherever name and shape fit."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import nn

from sanp.core.errors import SanpError, shown
from sanp.core.files import read_tensor_file
from sanp.core.limits import LONGEST_LABEL


@dataclass(frozen=True)
class Taken:
    """Which tensors of a file a network has taken."""

    taken: int
    """tensors of the file that are now in the network"""
    other_shape: tuple[str, ...]
    """those that the network has in another shape, as a classifier for other classes"""
    unknown: tuple[str, ...]
    """those that the network does not have"""
    missing: tuple[str, ...]
    """tensors of the network that the file does not have, or in another shape"""

    def __str__(self) -> str:
        text = f"{self.taken} tensors taken"
        parts = (
            ("of another shape", self.other_shape),
            ("not in the network", self.unknown),
            ("left as they were", self.missing),
        )
        return "; ".join([text, *(f"{what}: {_few(names)}" for what, names in parts if names)])


@torch.no_grad()
def take_weights(net: nn.Module, path: Path) -> Taken:
    """Copies the tensors of a safetensors file into ``net`` where name and shape fit, and says which.

    A prefix that all names of the file or of the network have in front, such as ``net.``, is overlooked.
    """
    try:
        _, tensors = read_tensor_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise SanpError(f"{path} cannot be read as a safetensors file ({error}): give another") from error
    own = net.state_dict(keep_vars=True)
    tensors = {_renamed(name, tensors, own): tensor for name, tensor in tensors.items()}
    fitting = {name for name, tensor in tensors.items() if name in own and _fits(own[name], tensor)}
    if not fitting:
        raise SanpError(
            f"{path} holds no tensor that fits {type(net).__name__}: it has {_few(tuple(tensors))}, and the network "
            f"{_few(tuple(own))}"
        )
    for name in fitting:
        own[name].copy_(tensors[name])
    other = tuple(name for name in tensors if name in own and name not in fitting)
    unknown = tuple(name for name in tensors if name not in own)
    return Taken(len(fitting), other, unknown, tuple(name for name in own if name not in fitting))


def _fits(own: object, tensor: torch.Tensor) -> bool:
    """Whether a tensor of a file can take the place of one of the network."""
    if not isinstance(own, torch.Tensor) or tensor.is_complex() != own.is_complex():
        return False
    return own.shape == tensor.shape and own.is_floating_point() == tensor.is_floating_point()


def _renamed(name: str, tensors: dict[str, torch.Tensor], own: dict[str, torch.Tensor]) -> str:
    """The name in the network: with or without a first part that all names of one side share."""
    first = name.partition(".")[0]
    if all(each.startswith(f"{first}.") for each in tensors) and name.removeprefix(f"{first}.") in own:
        return name.removeprefix(f"{first}.")
    shared = next(iter(own), "").partition(".")[0]
    if all(each.startswith(f"{shared}.") for each in own) and f"{shared}.{name}" in own:
        return f"{shared}.{name}"
    return name


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(name if len(name) <= LONGEST_LABEL else shown(name) for name in names[:4]) + (
        f" and {len(names) - 4} more" if len(names) > 4 else ""
    )
