"""A network as a module: its mode, its device, what wraps it, and calling it with any kind of input."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def as_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as arguments and keywords: a tuple is its arguments, a dict its keywords, all else its one input."""
    if isinstance(example, tuple):
        return example, {}
    return ((), example) if isinstance(example, dict) else ((example,), {})


def call_with(network: Callable[..., Any], example: Any) -> Any:
    """Calls the network with an example."""
    args, kwargs = as_arguments(example)
    return network(*args, **kwargs)


def tensors_in(tree: Any, depth: int = 3) -> list[Tensor]:
    """The tensors of a structure in order; objects with attributes, as dataclasses are, are looked into."""
    found: list[Tensor] = []
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif depth and hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
            found += tensors_in(list(vars(leaf).values()), depth - 1)
    return found


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, each module's own mode back afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def unwrapped(network: nn.Module) -> nn.Module:
    """What a wrapper for data-parallel training or compilation wraps; anything else as it is."""
    while True:
        if isinstance(network, nn.parallel.DistributedDataParallel | nn.DataParallel):
            network = network.module
        elif isinstance(inner := getattr(network, "_orig_mod", None), nn.Module):
            network = inner
        else:
            return network


def device_of(net: nn.Module) -> torch.device:
    """Where the network's parameters are."""
    parameter = next(net.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device
