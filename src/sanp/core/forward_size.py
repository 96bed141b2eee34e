"""What one forward would compute and hold, found without computing it: tensors on the meta device have only shapes."""

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sanp.core.errors import SanpError, shown
from sanp.core.limits import LARGEST_EXAMPLE, LARGEST_FORWARD_FLOPS, LARGEST_FORWARD_NUMBERS
from sanp.core.modules import call_with, evaluating

_MATRICES = ("mm", "addmm", "bmm", "baddbmm")


class _TooLarge(Exception):
    """The forward would be too large."""


class _Count(TorchDispatchMode):
    """Adds up the numbers that operators make, and the multiply-adds of convolutions and matrix products."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers, self.flops = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        fresh = sum(leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, Tensor))
        if not any(result.alias_info for result in func._schema.returns):  # else it is a view or works in place
            self.numbers += fresh
        name = func.overloadpacket.__name__
        if name == "convolution":
            kernel = args[1]
            self.flops += fresh * (kernel.numel() // max(1, kernel.shape[0]))
        elif name in _MATRICES:
            tensors = [leaf for leaf in args if isinstance(leaf, Tensor)]
            self.flops += fresh * tensors[-1].shape[-2]
        if self.numbers > LARGEST_FORWARD_NUMBERS or self.flops > LARGEST_FORWARD_FLOPS:
            raise _TooLarge
        return made


def check_numbers(shapes: Iterable[tuple[int, ...]], asked_by: object) -> None:
    """Raises an error if an example input of these shapes would be too large; ``asked_by`` names the file."""
    numbers = sum(math.prod(shape) for shape in shapes)  # in Python numbers, which do not overflow
    if numbers > LARGEST_EXAMPLE:
        raise SanpError(
            f"{asked_by} asks for an example of {shown(numbers)} numbers: give load an example_input instead"
        )


def check_forward(net: nn.Module, example: Any, asked_by: object) -> None:
    """Raises an error if the forward of ``net`` on an example of this shape would compute or hold too much.

    ``example`` holds tensors on the meta device; ``asked_by`` names the file in the error. A network that does not run
    on such tensors is not checked.
    """
    try:
        empty = copy.deepcopy(net).to("meta")
        with evaluating(empty), torch.no_grad(), _Count():
            call_with(empty, example)
    except _TooLarge:
        raise SanpError(
            f"{asked_by} asks for an example whose forward takes more than {LARGEST_FORWARD_FLOPS // 10**9} G "
            f"multiply-adds or holds more than {LARGEST_FORWARD_NUMBERS // 10**6} M numbers: give load an "
            "example_input instead"
        ) from None
    except Exception:
        return  # whatever is wrong with the example is said when the network itself runs on it
