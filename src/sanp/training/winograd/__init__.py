"""Faster training on a processor: 3x3 convolutions of stride 1, and their gradients, by Winograd's algorithm.

With AVX-512 by F(4x4, 3x3), or F(2x2, 3x3) on the smallest maps, in float32 and, where the processor has instructions
for it, in bf16; with AVX2 by F(4x4, 3x3) in float32. In bf16 that rounds by about 1 % of what a layer puts out: enough
for steps, while all that stays in a network after the last step (statistics of norms, thresholds) is found, and
evaluated, by torch's own convolutions.
results/training.jsonl has the time that it saves.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.overrides import TorchFunctionMode

from sanp.training.winograd.library import convolve, has_wide, kernel_gradient, usable

_PANEL = 16


@functools.cache
def pays(precision: str) -> bool:
    """Whether this processor is of the kind that it is faster on, and the native library can be used."""
    if precision == "bf16":
        return usable(torch.bfloat16)
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") and usable(torch.float32)


class Winograd(TorchFunctionMode):
    """Inside, convolutions are computed by Winograd's algorithm where it can be used, all others by torch.

    Where autocast asks for bf16, input and output are bf16; the kernels stay float32 up to their transform.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Torch calls this in place of each of its functions."""
        if func is torch.conv2d:
            served = _served(*args, **(kwargs or {}))
            if served is not None:
                x, weight, bias, padding = served
                y: Tensor = _Convolution.apply(x, weight, padding)  # type: ignore[no-untyped-call]
                return y if bias is None else y + bias.to(y.dtype)[:, None, None]
        return func(*args, **(kwargs or {}))


def _served(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, int] | None:
    """Input, weight, bias and padding of a convolution for which Winograd's algorithm pays; None for all others."""
    plain = groups == 1 and _both(stride) == 1 and _both(dilation) == 1 and _both(padding) in (0, 1, 2)
    if not plain or weight.dim() != 4 or weight.shape[2:] != (3, 3) or input.dim() != 4:
        return None
    if any(channels % _PANEL for channels in weight.shape[:2]) or input.shape[1] != weight.shape[1]:
        return None
    if any(type(x) not in (Tensor, torch.nn.Parameter) or not x.is_cpu for x in (input, weight)) or not len(input):
        return None
    dtype = _format()
    if dtype is None or weight.dtype != torch.float32 or input.dtype not in (dtype, torch.float32):
        return None
    sides = [side + 2 * _both(padding) - 2 for side in input.shape[2:]]
    tile, fewest = (2, 32) if has_wide(dtype) else (4, 16)
    if min(weight.shape[:2]) < fewest:
        return None
    tiled = [-(-side // tile) * tile for side in sides]
    if min(sides) < 1 or 2 * sides[0] * sides[1] < tiled[0] * tiled[1]:  # the tiles would be half empty
        return None
    return input.to(dtype), weight, bias, _both(padding)


def _format() -> torch.dtype | None:
    """The number format that autocast asks for, float32 without it; None where it cannot be had."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    return dtype if dtype in (torch.float32, torch.bfloat16) and usable(dtype) else None


def _both(value: Any) -> int:
    """A number that was given once or for both dimensions; -1 if the two differ or it is text."""
    if isinstance(value, int):
        return value
    pair = (-1,) if isinstance(value, str) else tuple(value)
    return int(pair[0]) if len(set(pair)) == 1 else -1


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, padding: int) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        ctx.padding = padding  # type: ignore[attr-defined]
        return convolve(x, weight, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        of_x, of_weight = ctx.needs_input_grad[:2]
        return (
            # dx is dy convolved with the kernels rotated by 180 degrees, input and output channels exchanged.
            convolve(gradient, weight, 2 - ctx.padding, turned=True) if of_x else None,
            kernel_gradient(x, gradient, ctx.padding).contiguous(memory_format=_layout(weight)) if of_weight else None,
            None,
        )


def _layout(weight: Tensor) -> torch.memory_format:
    last = weight.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format
