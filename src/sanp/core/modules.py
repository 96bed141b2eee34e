"""Helpers for any network: its mode, its device, its wrappers, and calling it with any kind of example input."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map


def as_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments that an example input stands for.

    A tuple holds positional arguments, a dict keyword arguments, and anything else is the only argument.
    """
    if isinstance(example, tuple):
        return example, {}
    return ((), example) if isinstance(example, dict) else ((example,), {})


def call_with(network: Callable[..., Any], example: Any) -> Any:
    """Calls the network with an example input, as :func:`as_arguments` reads it."""
    args, kwargs = as_arguments(example)
    return network(*args, **kwargs)


def tensors_in(tree: Any, depth: int = 3) -> list[Tensor]:
    """All tensors in a structure of lists, tuples and dicts, in order.

    Attributes of other objects, such as dataclasses, are searched too, ``depth`` levels deep.
    """
    found: list[Tensor] = []
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif depth and hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
            found += tensors_in(list(vars(leaf).values()), depth - 1)
    return found


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Inside, the network is in evaluation mode; afterwards every module has the mode it had before."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def unwrapped(network: nn.Module) -> nn.Module:
    """The network inside wrappers for data-parallel training or ``torch.compile``; any other network as it is."""
    while True:
        if isinstance(network, nn.parallel.DistributedDataParallel | nn.DataParallel):
            network = network.module
        elif isinstance(inner := getattr(network, "_orig_mod", None), nn.Module):
            network = inner
        else:
            return network


def device_of(net: nn.Module) -> torch.device:
    """The device of the network's first parameter; the CPU if it has no parameters."""
    parameter = next(net.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def placed_for(net: nn.Module, example: Any) -> Any:
    """The example input on the network's device; as it is if the network has no parameters, or on several devices."""
    devices = {parameter.device for parameter in net.parameters()}
    if len(devices) != 1:
        return example
    device = devices.pop()
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, example)
