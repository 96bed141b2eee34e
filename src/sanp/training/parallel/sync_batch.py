"""Makes the forward of a batch slice equal to that of the whole batch: common batch norm statistics and dropout.

PyTorch's SyncBatchNorm has no CPU kernel, and replaces modules. Here the function calls themselves are intercepted, so
that it works for batch norms of any module, in SPMs and called as functions.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sanp.core.batch_slice import own_slice
from sanp.core.distributed import sum_over_ranks

_ARGUMENTS = {
    F.batch_norm: ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
    torch.batch_norm: ("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"),
}
_DEFAULTS: dict[str, Any] = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}
_DROPOUTS = frozenset(
    {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout}
)


class SharedBatch(TorchFunctionMode):
    """Inside, batch norms and dropouts work on the batch of all processes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _ARGUMENTS:
            given = {**_DEFAULTS, **dict(zip(_ARGUMENTS[func], args, strict=False)), **kwargs}
            if given["training"]:
                return batch_norm(**{name: given[name] for name in _ARGUMENTS[func] if name != "training"})
        elif func in _DROPOUTS:
            return _dropout(func, args, kwargs)
        return func(*args, **kwargs)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """Batch norm in training, with the mean and the variance over the samples of all processes.

    The arguments are those of ``torch.nn.functional.batch_norm``. It computes in float32 or float64.
    """
    x = input if input.dtype == torch.float64 else input.float()
    over = [0, *range(2, x.dim())]
    shape = (1, -1, *(1,) * (x.dim() - 2))
    sums = torch.cat((x.sum(over), x.new_tensor([x.numel() / x.shape[1]])))  # (C + 1,)
    totals = sum_over_ranks(sums)
    count = totals[-1].detach()
    mean = totals[:-1] / count  # (C,)
    centred = x - mean.view(shape)
    # The mean of squared differences; mean(x²) - mean(x)² would lose digits.
    var = sum_over_ranks(centred.square().sum(over)) / count  # (C,)
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_var is not None:
            running_var.lerp_((var * count / (count - 1)).to(running_var.dtype), momentum)
    scale = torch.rsqrt(var + eps)
    if weight is not None:
        scale = scale * weight
    y = centred * scale.view(shape)
    return (y if bias is None else y + bias.view(shape)).to(input.dtype)


def _dropout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Applies dropout to the whole batch and returns this process's slice, so that all draw the same numbers."""
    x: Tensor = args[0] if args else kwargs["input"]
    own = own_slice()
    here = None if own is None or x.dim() == 0 else own.of(len(x))
    if here is None:
        return func(*args, **kwargs)
    rest = {name: value for name, value in kwargs.items() if name not in ("input", "inplace")}
    ends = (here.start, here.total - here.stop)
    whole = torch.cat([x.new_zeros(ends[0], *x.shape[1:]), x, x.new_zeros(ends[1], *x.shape[1:])])
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        whole = whole.contiguous(memory_format=torch.channels_last)  # numbers are drawn in the order of the memory
    return func(whole, *args[1:], **rest)[here.start : here.stop]
