"""Rules for maps that become larger: zeros around them or beside them, repeated pixels, pixels between others."""

import math
from typing import Any

import numpy as np
import torch

from sanp.engine.lowering.broadcasting import defined, spread_to
from sanp.engine.lowering.constants import constant_value
from sanp.engine.lowering.known import Moved, Padded, Places
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.moves import move
from sanp.engine.lowering.shapes import Between
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Value


def pad(low: Lowering, node: Node) -> None:
    """Zeros around a map, channels of zeros, zeros along any dimension; a negative padding cuts off.

    Another number is added where the zeros are.
    """
    x, pads, number, out = node.args[0], list(node.args[1]), node.argument(2, "value", 0), node.outputs[0]
    if len(pads) > 2 * (len(low.shape(x)) - 1) or out is None:
        raise Unsupported("padding of the samples")
    around = len(low.shape(x)) == 4 and len(pads) <= 4 and min(pads) >= 0
    left, right, top, bottom = (*pads, 0, 0)[:4]
    if number == -math.inf and around:
        return low.define(out, Padded(low.native(x), (top, left), (bottom, right), lowest=True))
    low.define(out, Padded(low.native(x), (top, left), (bottom, right)) if around else _zeros_beside(low, x, pads))
    if number == 0:
        return None
    shape = low.shape(out)
    constant = torch.nn.functional.pad(torch.zeros(1, *low.shape(x)[1:]), pads, value=number)
    made = low.writer.add(spread_to(low, out, shape), constant_value(low, constant, x, shape))
    return defined(low, node, made, shape)


def _zeros_beside(low: Lowering, x: Value, pads: list[int]) -> int | Moved:
    """A value with channels of zeros, or with zeros along any dimension."""
    if len(low.shape(x)) == 4 and len(pads) == 6 and not any(pads[:4]) and min(pads) >= 0:
        read, (before, after) = low.native(x), pads[4:]
        zeros = {n: low.constant(x, low.shape(x)[1], 0.0) for n in (before, after) if n}
        blank = [low.writer.channels(zeros[n], [0] * n) if n else None for n in (before, after)]
        return low.writer.concat([part for part in (blank[0], read, blank[1]) if part is not None])
    moved = low.moved(x)
    return Moved(moved.base, torch.nn.functional.pad(moved.index, pads, value=-1))


def nearest(low: Lowering, node: Node) -> None:
    """Every pixel several times: the mean over windows of one pixel."""
    before, after = low.shape(node.args[0]), low.shape(node.outputs[0])  # type: ignore[arg-type]
    if after[2] % before[2] or after[3] % before[3]:
        return move(low, node)
    return low.define(
        node.outputs[0], low.writer.adaptive(low.native(node.args[0]), (after[2], after[3]), maximum=False)
    )


def bilinear(low: Lowering, node: Node) -> None:
    """Pixels between four others."""
    x, _, corners = node.args[:3]
    before, after = low.shape(x), low.shape(node.outputs[0])  # type: ignore[arg-type]
    scales = (*node.args[3:], None, None)[:2]
    rows, columns = (
        _between(before[d], after[d], scale, bool(corners)) for d, scale in zip((2, 3), scales, strict=True)
    )
    low.define(node.outputs[0], low.writer.resize(low.native(x), rows, columns))


def _between(before: int, after: int, scale: Any, corners: bool) -> Between:
    """Where torch takes the rows of a larger or smaller map from; ``corners`` says that those of the corners stay."""
    places = np.arange(after, dtype=np.float32)
    if corners:
        at = places * np.float32((before - 1) / (after - 1) if after > 1 else 0)
    else:
        step = np.float32(1 / scale if scale is not None and scale > 0 else before / after)
        at = np.maximum((places + np.float32(0.5)) * step - np.float32(0.5), 0)
    first = np.minimum(at.astype(np.int64), before - 1)
    second = np.minimum(first + 1, before - 1)
    weight = np.clip(at - first.astype(np.float32), 0, 1).astype(np.float32)
    return Between(first=tuple(first.tolist()), second=tuple(second.tolist()), weight=weight)


def unpool(low: Lowering, node: Node) -> None:
    """Numbers at the places that a pooling found."""
    x, places = node.args[:2]
    known = low.known(places) if not isinstance(places, torch.Tensor) else None
    if not isinstance(known, Places) or known.window is None:
        raise Unsupported("numbers at places that no pooling of the native part found")
    size, shape = low.shape(node.outputs[0])[2:], low.writer.shapes[known.x]  # type: ignore[arg-type]
    if tuple(size) != shape[1:] or low.shape(x)[1] != shape[0] or low.shape(x) != low.shape(places):
        raise Unsupported("numbers put back into a map of another size")
    low.define(node.outputs[0], low.writer.unpool(low.native(x), known.x, known.window))
