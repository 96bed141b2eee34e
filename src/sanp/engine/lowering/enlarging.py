"""Rules for maps that become larger, or are made of nothing: zeros around them, channels of zeros, repeated pixels."""

import torch

from sanp.engine.lowering.elementwise import argument
from sanp.engine.lowering.known import Padded
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.shapes import sample_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node


def pad(low: Lowering, node: Node) -> None:
    """Zeros around a map, or channels of zeros; a negative padding cuts off, which is not known."""
    x, pads = node.args[:2]
    if len(low.shape(x)) == 4 and len(pads) == 6 and not any(pads[:4]) and min(pads) >= 0:
        if argument(node, 2, "value", 0) != 0:
            raise Unsupported("padding that is not zeros around a map")
        read, (before, after) = low.native(x), pads[4:]
        zeros = {n: low.constant(x, low.shape(x)[1], 0.0) for n in (before, after) if n}
        blank = [low.writer.channels(zeros[n], [0] * n) if n else None for n in (before, after)]
        parts = [part for part in (blank[0], read, blank[1]) if part is not None]
        return low.define(node.outputs[0], low.writer.concat(parts))
    if len(low.shape(x)) != 4 or len(pads) > 4 or min(pads) < 0 or argument(node, 2, "value", 0) != 0:
        raise Unsupported("padding that is not zeros around a map")
    left, right, top, bottom = (*pads, 0, 0)[:4]
    return low.define(node.outputs[0], Padded(low.native(x), (top, left), (bottom, right)))


def nearest(low: Lowering, node: Node) -> None:
    """Every pixel several times: the mean over windows of one pixel."""
    before, after = low.shape(node.args[0]), low.shape(node.outputs[0])  # type: ignore[arg-type]
    if after[2] % before[2] or after[3] % before[3]:
        raise Unsupported("an enlargement that is not by whole numbers")
    low.define(node.outputs[0], low.writer.adaptive(low.native(node.args[0]), (after[2], after[3]), maximum=False))


def zeros(low: Lowering, node: Node) -> None:
    """A map of zeros as large as another."""
    x = node.args[0]
    if node.kwargs.get("dtype") not in (None, torch.float32) or low.channels_last(x) is not None:
        raise Unsupported("zeros in another precision, or with their channels last")
    low.define(node.outputs[0], low.constant(x, sample_shape(low.shape(x))[0], 0.0))
