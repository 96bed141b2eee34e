"""A gated convolution whose batch norm is a function that the network's own forward calls: its scale waits for that.

A batch norm that is a module moves inside the gated convolution. One that is called as ``F.batch_norm`` cannot, and
what is scaled before a batch norm is not what eq. 5 says. So the scale is kept until that batch norm has run.
"""

from contextvars import ContextVar, Token
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sanp.core.errors import SanpError

_Waiting = dict[int, tuple[Tensor, Tensor]]
"""identity of features to them, kept alive, and their scale (N, C)"""
_waiting: ContextVar[_Waiting | None] = ContextVar("waiting", default=None)


def over_positions(scale: Tensor, features: Tensor) -> Tensor:
    """(N, C) made to multiply (N, C, ...) in the precision of the features."""
    return scale.to(features.dtype).reshape(*scale.shape, *(1,) * (features.dim() - 2))


def scale_later(layer: str, features: Tensor, scale: Tensor) -> None:
    """Keeps the scale of a layer's features for the batch norm that will read them."""
    waiting = _waiting.get()
    if waiting is None:
        raise SanpError(
            f"{layer} is scaled after a batch norm outside it: call the whole gated network, and leave activation "
            "checkpointing off"
        )
    waiting[id(features)] = features, scale


def waiting_scale(features: Tensor) -> Tensor:
    """The scale that waits for these features."""
    return (_waiting.get() or {})[id(features)][1]


class ScaleAfterNorm(TorchFunctionMode):
    """Inside, a functional batch norm's output is multiplied by the scale that waits for its input."""

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
                return result * over_positions(scale, result)
        return result
