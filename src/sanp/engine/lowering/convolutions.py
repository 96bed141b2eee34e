"""Convolutions that are not over maps as they are: over sequences, over one of three dimensions, transposed ones."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.arranging import numbered
from sanp.engine.lowering.gate_weights import floats
from sanp.engine.lowering.known import Pending, Spread
from sanp.engine.lowering.shapes import Floats, Pair, Window, pair
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.lowering.writer import Writer
from sanp.tracing.graph import ConvolutionCall

_MOST_TAPS = 1024
"""of a window"""


def window_of(call: ConvolutionCall, weight: Tensor) -> tuple[Floats, Window]:
    """The weight (C_out, C_in / groups, height, width) and the window of a convolution.

    A sequence is a map of one row. Of three dimensions the first is the height; windows have one pixel in the others.
    """
    if weight.dim() not in (3, 4, 5) or weight.dtype != torch.float32:
        raise Unsupported(f"a convolution over {weight.dim() - 2} dimensions in {weight.dtype}")
    kernel, settings = floats(weight), (call.stride, call.padding, call.dilation)
    if weight.dim() == 3:
        stride, padding, dilation = (pair(given)[1] for given in settings)
        window = Window(kernel=(1, weight.shape[2]), stride=(1, stride), padding=(0, padding), dilation=(1, dilation))
        kernel = kernel[:, :, None]
    elif weight.dim() == 5:
        window = _upright(weight, *settings)
        kernel = kernel[..., 0]
    else:
        window = Window(
            kernel=(weight.shape[2], weight.shape[3]), stride=pair(call.stride), padding=pair(call.padding),
            dilation=pair(call.dilation),
        )  # fmt: skip
    if window.kernel[0] * window.kernel[1] > _MOST_TAPS:
        raise Unsupported(f"a kernel of more than {_MOST_TAPS} taps")
    return kernel, window


def _upright(weight: Tensor, *settings: Sequence[int]) -> Window:
    """The window of a convolution along the first of three dimensions."""
    stride, padding, dilation = (list(given) * (3 // len(given)) for given in settings)
    if weight.shape[3:] != (1, 1) or stride[1:] != [1, 1] or padding[1:] != [0, 0]:
        raise Unsupported("a convolution over three dimensions whose windows are not along the first alone")
    return Window(
        kernel=(weight.shape[2], 1), stride=(stride[0], 1), padding=(padding[0], 0), dilation=(dilation[0], 1)
    )


def transposed(path: str, x: int, call: ConvolutionCall, shape: torch.Size) -> Pending:
    """A transposed convolution that gives this shape, not written yet."""
    weight, (stride, padding, dilation) = call.weight, (call.stride, call.padding, call.dilation)
    assert isinstance(weight, Tensor)
    if weight.dim() not in (3, 4) or weight.dtype != torch.float32:
        raise Unsupported("a transposed convolution that is over neither maps nor sequences")
    if weight.dim() == 3:
        weight, stride, padding, dilation = weight[:, :, None], [1, *stride], [0, *padding], [1, *dilation]
    inputs, outputs, *taps = weight.shape
    apart = [step * (count - 1) + 1 for step, count in zip(dilation, taps, strict=True)]
    wide = torch.zeros(inputs, outputs, *apart)  # dilation as zero taps in between
    wide[:, :, :: dilation[0], :: dilation[1]] = weight
    grouped = wide.reshape(call.groups, inputs // call.groups, outputs, *apart).transpose(1, 2)
    kernel = floats(grouped.reshape(call.groups * outputs, inputs // call.groups, *apart))
    shift = np.zeros(len(kernel), np.float32) if call.bias is None else floats(call.bias)
    spread = Spread(pair(stride), pair(padding), (1, *shape[2:])[-2:])
    window = Window(kernel=(apart[0], apart[1]))
    return Pending(path, x, kernel, shift, window, call.groups, spread=spread)


def spread_out(writer: Writer, conv: Pending, spread: Spread, act: Activation) -> int:
    """Writes a transposed convolution: one for each place under the stride, and their pixels put together.

    The pixels at one place under the stride read every ``stride``-th tap of the kernel, as a convolution of their own.
    """
    _, height, width = writer.shapes[conv.x]
    size = (-(-spread.size[0] // spread.stride[0]), -(-spread.size[1] // spread.stride[1]))
    parts = []
    for y in range(spread.stride[0]):
        for x in range(spread.stride[1]):
            weight, above, below = _taps(conv.weight, 2, y, spread, (height, size[0]))
            weight, left, right = _taps(weight, 3, x, spread, (width, size[1]))
            window = Window(
                kernel=(weight.shape[2], weight.shape[3]), padding=(above, left), padding_after=(below, right)
            )
            parts.append(
                writer.conv(
                    conv.x, np.ascontiguousarray(weight), conv.bias, window, groups=conv.groups, act=act,
                    gate=conv.gate, follows=conv.follows, scale_after=conv.act is not None,
                )
            )  # fmt: skip
    if len(parts) == 1 and size == spread.size:
        return parts[0]
    numbers = numbered((*spread.stride, len(conv.bias), *size)).permute(2, 3, 0, 4, 1)
    merged = numbers.reshape(len(conv.bias), size[0] * spread.stride[0], size[1] * spread.stride[1])
    index = merged[:, : spread.size[0], : spread.size[1]]
    columns = index[0].flatten()
    rows = (index[:, 0, 0] - index[0, 0, 0]).tolist()
    return writer.gather(writer.concat(parts), rows, columns.tolist(), (len(conv.bias), *spread.size))


def _taps(weight: Floats, axis: int, place: int, spread: Spread, sizes: Pair) -> tuple[Floats, int, int]:
    """The taps, in reverse, of the outputs at one place under the stride, and the padding before and after.

    Output q at this place reads inputs from q - before on. Zero taps stand where a padding would be negative.
    """
    stride, padding = spread.stride[axis - 2], spread.padding[axis - 2]
    first, offset = (place + padding) % stride, (place + padding) // stride
    taps = np.flip(weight[(slice(None),) * axis + (slice(first, None, stride),)], axis)
    if not taps.shape[axis]:
        taps = np.zeros((*weight.shape[:axis], 1, *weight.shape[axis + 1 :]), np.float32)
    before, after = taps.shape[axis] - 1 - offset, sizes[1] + offset - sizes[0]
    more = [(0, 0)] * weight.ndim
    more[axis] = (max(0, -before), max(0, -after))
    return np.pad(taps, more), max(0, before), max(0, after)
