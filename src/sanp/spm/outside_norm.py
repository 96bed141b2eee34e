"""Gated convolutions whose batch norm is a call of ``F.batch_norm`` in the network's own forward.

A batch norm that is a module moves inside the gated convolution. A function call cannot be moved, but the features must
be scaled after the batch norm (paper eq. 4), not before. So the scale is kept until that call, and applied to its
result.
"""

from contextvars import ContextVar, Token
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sanp.core.errors import SanpError

_Waiting = dict[int, tuple[Tensor, Tensor]]
"""identity of a feature tensor to the tensor, so that it stays alive, and its scale (N, C)"""
_waiting: ContextVar[_Waiting | None] = ContextVar("waiting", default=None)


def scale_of_map(scale: Tensor, features: Tensor) -> Tensor:
    """A scale (N, C) in the shape (N, C, 1, ...) and the precision that multiply ``features`` (N, C, ...)."""
    return scale.to(features.dtype).reshape(*scale.shape, *(1,) * (features.dim() - 2))


def scale_later(layer: str, features: Tensor, scale: Tensor) -> None:
    """Keeps the scale (N, C) of a layer's features until a batch norm is called on them.

    ``layer`` is the layer's name, for an error message.
    """
    waiting = _waiting.get()
    if waiting is None:
        raise SanpError(
            f"{layer} is scaled after a batch norm outside it: call the whole gated network, and leave activation "
            "checkpointing off"
        )
    waiting[id(features)] = features, scale


def waiting_scale(features: Tensor) -> Tensor:
    """The scale that :func:`scale_later` has kept for these features."""
    return (_waiting.get() or {})[id(features)][1]


class ScaleAfterNorm(TorchFunctionMode):
    """Inside, the result of a functional batch norm is multiplied by the scale that was kept for its input."""

    def __init__(self) -> None:
        super().__init__()
        self._token: Token[_Waiting | None] | None = None

    def __enter__(self) -> "ScaleAfterNorm":
        self._token = _waiting.set({})
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        assert self._token is not None
        _waiting.reset(self._token)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        waiting = _waiting.get()
        if func in (F.batch_norm, torch.batch_norm) and waiting:
            features = args[0] if args else (kwargs or {})["input"]
            _, scale = waiting.pop(id(features), (None, None))
            if scale is not None:
                return result * scale_of_map(scale, result)
        return result
