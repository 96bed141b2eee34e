"""A write to part of a tensor's memory, as a choice of channels: new ones where it wrote, the old ones elsewhere."""

from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.unsupported import Unsupported
from sanp.tracing.graph import Node, Region, Value


def write_over(low: Lowering, node: Node) -> None:
    """A value after a write to a tensor that shares its memory, where both are whole maps of some channels."""
    before, written = node.args
    region, over = node.kwargs["region"], node.kwargs["over"]
    if not isinstance(before, Value) or not isinstance(written, Value):
        raise Unsupported("a write into memory that is not features")
    channels, count = region.shape[1] if len(region.shape) == 4 else 0, over.shape[1] if len(over.shape) == 4 else 0
    first = _first_channel(region, over)
    if first >= 0 and first + count <= channels:
        source = low.native(before)
        kept = [range(first), range(first + count, channels)]
        left, right = ([low.writer.channels(source, each)] if each else [] for each in kept)
        parts = [*left, low.native(written), *right]
        low.define(node.outputs[0], low.writer.concat(parts) if len(parts) > 1 else parts[0])
        return
    inner = _first_channel(over, region)
    if inner < 0 or inner + channels > count:
        raise Unsupported("a write into other places of memory than whole channels")
    low.define(node.outputs[0], low.writer.channels(low.native(written), range(inner, inner + channels)))


def _first_channel(whole: Region, part: Region) -> int:
    """The number of the first channel of ``part`` in ``whole``, two maps in one memory; -1 if it is no such part."""
    if len(whole.shape) != 4 or len(part.shape) != 4 or whole.stride != part.stride:
        return -1
    if whole.shape[0] != part.shape[0] or whole.shape[2:] != part.shape[2:]:
        return -1
    first, rest = divmod(part.offset - whole.offset, whole.stride[1])
    return first if rest == 0 and first >= 0 else -1


def copy_over(low: Lowering, node: Node) -> None:
    """A tensor that becomes a copy of another of its shape."""
    source = node.args[1]
    if not isinstance(source, Value) or low.shape(source) != low.shape(node.outputs[0]):  # type: ignore[arg-type]
        raise Unsupported("a copy of something else than features of one shape")
    low.define(node.outputs[0], low.native(source))
