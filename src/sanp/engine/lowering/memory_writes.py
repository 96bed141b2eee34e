"""Writes to part of a tensor's memory: as a choice of channels where that is enough, else element by element."""

import math
from typing import Any

import torch
from torch import Tensor

from sanp.engine.lowering.known import NOT_KNOWN, Moved
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.moves import Numbering
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Region, Value


def write_over(low: Lowering, node: Node) -> None:
    """A value after a write to a tensor that shares its memory."""
    before, written = node.args
    region, over = node.kwargs["region"], node.kwargs["over"]
    if isinstance(before, Value) and isinstance(written, Value) and _by_channels(low, node, before, written):
        return
    if 0 in (*region.shape, *over.shape):
        raise Unsupported("a write to no memory")
    base, old, new = _of_one_base(low, before, written)
    numbering = Numbering(region.shape[0], math.prod(low.writer.shapes[base]))
    memory = torch.zeros(max(region.end, over.end), dtype=torch.long)
    region_of(memory, region).copy_(numbering.of_batch(old))
    region_of(memory, over).copy_(numbering.of_batch(new))
    low.define(node.outputs[0], Moved(base, numbering.of_sample(region_of(memory, region), "a write")))


def region_of(memory: Tensor, region: Region) -> Tensor:
    """The part of a memory that a tensor lies in."""
    return memory.as_strided(region.shape, region.stride, region.offset)


def _of_one_base(low: Lowering, before: Any, written: Any) -> tuple[int, Tensor, Tensor]:
    """A program's value that holds the elements of two others, and where those of each are in it."""
    if not isinstance(written, Value):
        raise Unsupported("a write of something that has no row for each sample")
    new = _elements(low, written)
    if not isinstance(before, Value):
        return new.base, torch.where((before == 0).all(0), -1, NOT_KNOWN), new.index  # as it is after the write
    old = _elements(low, before)
    if old.base == new.base or int(old.index.max()) < 0:
        return new.base, old.index, new.index
    if int(new.index.max()) < 0:
        return old.base, old.index, new.index
    shapes = [low.writer.shapes[part.base] for part in (old, new)]
    bases = [old.base, new.base]
    if shapes[0][1:] != shapes[1][1:]:
        bases = [low.writer.flatten(base) for base in bases]
    first = math.prod(shapes[0])
    return low.writer.concat(bases), old.index, torch.where(new.index < 0, new.index, new.index + first)


def _elements(low: Lowering, value: Value) -> Moved:
    if low.shape(value)[:1] != low.shape(low.trace.inputs[0])[:1]:
        raise Unsupported("a write of something that has no row for each sample")
    return low.moved(value)


def _by_channels(low: Lowering, node: Node, before: Value, written: Value) -> bool:
    """Whether both are whole maps of some channels, so that new channels stand where it wrote, old ones elsewhere."""
    region, over = node.kwargs["region"], node.kwargs["over"]
    channels, count = region.shape[1] if len(region.shape) == 4 else 0, over.shape[1] if len(over.shape) == 4 else 0
    first = _first_channel(region, over)
    if first >= 0 and first + count <= channels:
        kept = [range(first), range(first + count, channels)]
        source = low.native(before) if any(kept) else -1
        left, right = ([low.writer.channels(source, each)] if each else [] for each in kept)
        parts = [*left, low.native(written), *right]
        low.define(node.outputs[0], low.writer.concat(parts) if len(parts) > 1 else parts[0])
        return True
    inner = _first_channel(over, region)
    if inner < 0 or inner + channels > count:
        return False
    low.define(node.outputs[0], low.writer.channels(low.native(written), range(inner, inner + channels)))
    return True


def _first_channel(whole: Region, part: Region) -> int:
    """The number of the first channel of ``part`` in ``whole``, two maps in one memory; -1 if it is no such part."""
    if len(whole.shape) != 4 or len(part.shape) != 4 or whole.stride != part.stride:
        return -1
    if whole.shape[0] != part.shape[0] or whole.shape[2:] != part.shape[2:]:
        return -1
    first, rest = divmod(part.offset - whole.offset, whole.stride[1])
    return first if rest == 0 and first >= 0 else -1


def copy_over(low: Lowering, node: Node) -> None:
    """A tensor that becomes a copy of another, which may be repeated to its shape."""
    target, source = node.outputs[0], node.args[1]
    assert target is not None
    shape = low.shape(target)
    if not isinstance(source, Value):
        raise Unsupported("a copy of something else than features")
    known = low.known(source)
    if low.shape(source) == shape and (isinstance(known, Moved) or low.channels_last(source) is None):
        return low.define(target, known if isinstance(known, Moved) else low.native(source))
    if len(low.shape(source)) != len(shape):
        raise Unsupported("a copy of features with another number of dimensions")
    moved = _elements(low, source)
    return low.define(target, Moved(moved.base, moved.index.expand(shape[1:])))


def empty_memory(low: Lowering, node: Node) -> None:
    """Memory that nothing was written to, or zeros, of any shape with a row for each sample."""
    shape, x = low.shape(node.outputs[0]), node.args[0]  # type: ignore[arg-type]
    if node.kwargs.get("dtype") not in (None, torch.float32) or shape[:1] != low.shape(low.trace.inputs[0])[:1]:
        raise Unsupported("memory in another precision, or without a row for each sample")
    number = -1 if "zero" in node.op else NOT_KNOWN
    low.define(node.outputs[0], Moved(low.native(x), torch.full(shape[1:], number)))


def filled_memory(low: Lowering, node: Node) -> None:
    """A tensor that becomes zeros; other constants are not known."""
    number = 0 if node.base_op == "zero" else node.argument(1, "value", None)
    zeros = number == 0 if isinstance(number, int | float) else not bool(getattr(number, "any", lambda: True)())
    moved = low.moved(node.args[0])
    low.define(node.outputs[0], Moved(moved.base, torch.full_like(moved.index, -1 if zeros else NOT_KNOWN)))
