"""A network and its input from the command line: ``module:factory`` and a shape as ``1,3,224,224``."""

import importlib
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError, unknown_name


def build_network(target: str) -> nn.Module:
    """Imports what ``module:factory`` names, which may lie in the working directory, and calls it.

    The factory is a function or a class that takes no arguments; a network that is there already is taken as it is.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise SanpError(f"{target!r} does not name a network: give module:factory, as torchvision.models:resnet18")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise SanpError(f"{module_name} cannot be imported ({type(error).__name__}: {error})") from error
    factory = getattr(module, name, None)
    if factory is None:
        raise unknown_name(f"name in {module_name}", name, [each for each in vars(module) if not each.startswith("_")])
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory) or isinstance(factory, Tensor):
        raise SanpError(f"{target} is a {type(factory).__name__}: give a function or class that builds a network")
    try:
        net = factory()
    except Exception as error:
        raise SanpError(
            f"{target} cannot be called without arguments ({type(error).__name__}: {error}): "
            "write a function that calls it with yours"
        ) from error
    if not isinstance(net, nn.Module):
        raise SanpError(f"{target} gives a {type(net).__name__}: give what builds a network")
    return net


def read_input(shape: str) -> Tensor:
    """A random input of a shape that is written as sizes with commas."""
    sizes = shape.split(",")
    if not all(size.strip().isdecimal() and len(size) < 10 and int(size) > 0 for size in sizes):
        raise SanpError(f"input {shape!r} cannot be read: give sizes with commas, as 1,3,224,224")
    try:
        return torch.randn([int(size) for size in sizes])
    except RuntimeError as error:
        raise SanpError(f"input {shape} does not fit in memory: give a smaller one") from error
