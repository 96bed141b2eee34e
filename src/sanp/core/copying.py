"""A copy of someone's network that shares nothing with it, also where PyTorch's own copying would leave a thread."""

import copy
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn

from sanp.core.errors import SanpError
from sanp.core.modules import tensors_in

HOOKS = "_forward_hooks _forward_pre_hooks _backward_hooks _backward_pre_hooks _state_dict_hooks".split()


def copy_of(net: nn.Module) -> nn.Module:
    """A deep copy, also of a network that keeps tensors which were computed, as an old-style weight norm does.

    Functions that a module holds, as hooks are, and that mean the original by a variable of theirs mean the copy
    afterwards.
    """
    memo: dict[int, Any] = {}
    for module in net.modules():
        for tensor in tensors_in([value for key, value in vars(module).items() if key not in ("_modules",)], depth=0):
            if not tensor.is_leaf:
                memo[id(tensor)] = tensor.detach().clone()
    try:
        with torch.no_grad():  # else the parameters of a copied script are results of a computation
            twin = copy.deepcopy(net, memo)
    except Exception as error:
        raise SanpError(f"{type(net).__name__} cannot be copied ({error}): build it anew and gate that") from error
    for mine, given in zip(twin.parameters(), net.parameters(), strict=True):
        mine.requires_grad_(given.requires_grad)
    instead = dict(zip(map(id, net.modules()), twin.modules(), strict=True))
    for module in twin.modules():
        if not isinstance(module, torch.jit.ScriptModule):
            _rebind(module, instead)
    return twin


def is_tied(net: nn.Module) -> bool:
    """Functions that its modules hold mean modules of it: a plain deep copy would still mean the original's."""
    own = {id(module): module for module in net.modules()}
    scripts = (module for module in net.modules() if not isinstance(module, torch.jit.ScriptModule))
    return any(_tied(held, own) for module in scripts for held in _held(module))


def _held(module: nn.Module) -> list[dict[Any, Any]]:
    return [vars(module), *(vars(module)[name] for name in HOOKS if name in vars(module))]


def _tied(held: dict[Any, Any], own: dict[int, nn.Module]) -> list[Any]:
    """The keys of functions that mean one of these modules."""
    functions = {key: value for key, value in held.items() if isinstance(value, FunctionType)}
    return [key for key, value in functions.items() if any(id(part) in own for part in _variables(value))]


def _rebind(module: nn.Module, instead: dict[int, nn.Module]) -> None:
    """Lets a module's hooks and other functions mean the modules of the copy."""
    for held in _held(module):
        for key in _tied(held, instead):
            held[key] = _with_variables(held[key], [instead.get(id(part), part) for part in _variables(held[key])])


def _variables(function: FunctionType) -> list[Any]:
    """What the function took from around it."""
    try:
        return [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a variable without a value yet
        return []


def _with_variables(function: FunctionType, variables: list[Any]) -> FunctionType:
    cells = tuple(map(CellType, variables))
    twin = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin
