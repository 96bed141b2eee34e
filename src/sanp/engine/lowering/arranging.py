"""Elements of a program's value in another order: as a choice of channels or a flattening where that is enough."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sanp.engine.lowering.known import NOT_KNOWN
from sanp.engine.lowering.shapes import Shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.lowering.writer import Writer


def arranged(writer: Writer, base: int, index: Tensor, shape: Shape) -> int:
    """A value of this shape whose elements, in order, are those of ``base`` with these numbers; -1 stands for 0."""
    if int(index.min()) <= NOT_KNOWN:
        raise Unsupported("memory that holds constants, or numbers that were never written")
    channels, height, width = writer.shapes[base]
    numbers, pixels = index.reshape(shape[0], -1), height * width
    if (height, width) == shape[1:]:
        source = numbers[:, 0] // pixels
        if int(source.min()) >= 0 and torch.equal(numbers, source[:, None] * pixels + torch.arange(pixels)):
            return _chosen(writer, base, source)
    elif shape[1:] == (1, 1) and int(numbers.min()) >= 0:
        flat = torch.equal(numbers[:, 0], torch.arange(channels * pixels))
        if flat or len(numbers) <= channels * pixels:
            return _chosen(writer, writer.flatten(base), numbers[:, 0])
    rows, columns = _separated(numbers, pixels)
    return writer.gather(base, rows, columns, shape)


def _chosen(writer: Writer, base: int, source: Tensor) -> int:
    if torch.equal(source, torch.arange(writer.shapes[base][0])):
        return base
    return writer.channels(base, source.tolist())


def _separated(numbers: Tensor, pixels: int) -> tuple[Sequence[int], Sequence[int]]:
    """Rows and columns whose sums are the numbers (rows, columns); one column where there are no such."""
    there = numbers >= 0
    whole = there.all(0)
    if bool(whole.any()) and not bool((there.any(0) & ~whole).any()):
        kept = numbers[:, whole]
        row = kept.amin(1)
        column = kept[0] - row[0]
        within = int((row % pixels).max()) + int((column % pixels).max()) < pixels
        if within and bool((column >= 0).all()) and torch.equal(row[:, None] + column, kept):
            columns = torch.full((numbers.shape[1],), -1)
            columns[whole] = column
            return row.tolist(), columns.tolist()
    return numbers.flatten().tolist(), [0]


def numbered(shape: Sequence[int]) -> Tensor:
    """The numbers of the elements of a value of this shape."""
    return torch.arange(math.prod(shape)).reshape(tuple(shape))
