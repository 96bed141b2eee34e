"""Finds the cause of a loss that is not finite: the input, a parameter, or the first layer whose output is not."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sanp.core.errors import SanpError


class NotFinite(SanpError):
    """Training met a number that is not finite."""


def finite(value: Any) -> bool:
    """Whether all numbers of all tensors in a structure are finite."""
    tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def bad_parameter(net: nn.Module) -> str | None:
    """The name of the first parameter or buffer that is not finite; None if all are."""
    return next((name for name, tensor in net.state_dict().items() if not finite(tensor)), None)


@torch.no_grad()
def where(net: nn.Module, x: Tensor) -> str:
    """What is not finite, in words, found by one more forward of the bad batch ``x``; empty if nothing is found."""
    if not finite(x):
        return "the images of this batch hold NaN or infinity"
    for name, parameter in net.named_parameters():  # not buffers: this batch may have spoiled running statistics
        if not finite(parameter):
            return f"{name} is not finite, since an earlier step was too large"
    found: list[str] = []
    names = {module: name for name, module in net.named_modules()}

    def look(module: nn.Module, given: Any, result: Any) -> None:
        if not found and not finite(result):
            found.append(f"layer {names[module] or '(the whole network)'} ({type(module).__name__}) is the first")

    hooks = [module.register_forward_hook(look) for module in names]
    try:
        net(x)
    except Exception:  # an error in this search must not hide the error that it is to explain
        return ""
    finally:
        for hook in hooks:
            hook.remove()
    return f"{found[0]} whose output is not finite" if found else ""
