"""Where a forward hands numbers of its tensors to Python, which may then go another way for another image."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

_METHODS = ("tolist", "numpy", "__array__", "__dlpack__")
"""methods of a tensor that give its numbers away without an operator"""
_MASKS = (torch.bool, torch.uint8)


def depends_on_numbers(func: Any, args: tuple[Any, ...], is_traced: Callable[[Tensor], bool]) -> bool:
    """Whether what an operator gives to Python, a number or a tensor's size, depends on the numbers that it is given.

    Indexing does so by masks only, and only by such that depend on the network's input, as ``is_traced`` says: by
    numbers, the result has as many elements as there are indices.
    """
    tags = getattr(func, "tags", ())
    if torch.Tag.data_dependent_output in tags:
        return True
    if torch.Tag.dynamic_output_shape not in tags:
        return False
    indices = [leaf for leaf in tree_leaves(args[1:]) if isinstance(leaf, Tensor)]
    masks = [index for index in indices if index.dtype in _MASKS]
    return func.overloadpacket.__name__ != "index" or any(map(is_traced, masks))


class Methods(TorchFunctionMode):
    """Notes the methods that give the numbers of a traced tensor away.

    ``note`` takes a method's name; ``is_traced`` says whether a tensor depends on the network's input.
    """

    def __init__(self, note: Callable[[str], None], is_traced: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.note, self.is_traced = note, is_traced

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _METHODS and isinstance(args[0], Tensor) and self.is_traced(args[0]):
            self.note(name)
        return func(*args, **(kwargs or {}))
