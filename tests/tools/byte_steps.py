"""Every operator of an int8 program against its simulation in torch, each on what the library itself made before it.

So an error of one operator is not hidden by what follows, and what rounds otherwise at a tie does not grow.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering import operators as ops
from sanp.engine.lowering.byte_operators import ByteAverage, ByteCombine, ByteConv, BytePool, Dequantise, Quantise
from sanp.engine.lowering.program import ProgramWriter
from tests.tools.byte_simulation import Simulation


class StepByStep(Simulation):
    """A simulation whose operators read what the library made; ``decisions`` has for each gate (N, C)."""

    def __init__(self, writer: ProgramWriter, inputs: Sequence[Tensor], decisions: Sequence[Tensor]) -> None:
        self.made = _all_values(writer, inputs, decisions)
        self.zeros = _zeros(writer)
        self.bytes, self.different, self.farthest, self.worst = 0, 0, 0.0, 0.0
        """bytes in all, those that differ, by how many steps, and the largest relative error of what is in fp32"""
        super().__init__(writer, inputs, decisions)

    def _keep(self, out: int, made: Tensor, live: Tensor | None = None) -> None:
        seen = self.made[out].double().reshape(made.shape)
        difference = (made - seen).abs()
        if out in self.zeros:
            self.bytes += made.numel()
            self.different += int((difference > 0).sum())
            self.farthest = max(self.farthest, float(difference.max()))
        else:
            self.worst = max(self.worst, float(difference.max()) / max(float(made.abs().max()), 1e-6))
        super()._keep(out, seen, live)


def _zeros(writer: ProgramWriter) -> dict[int, int]:
    """The values of bytes, and their zero points."""
    found: dict[int, int] = {}
    for operator in writer.operators:
        match operator:
            case ByteConv(to_bytes=True, out=out, out_zero=zero):
                found[out] = zero
            case Quantise(out=out, zero=zero) | ByteAverage(out=out, zero=zero) | ByteCombine(out=out, zero=zero):
                found[out] = zero
            case BytePool(x=x, out=out):
                found[out] = found[x]
    return found


def _all_values(writer: ProgramWriter, inputs: Sequence[Tensor], decisions: Sequence[Tensor]) -> dict[int, Tensor]:
    """What the library makes of each value, bytes less their zero points."""
    shown, zeros = ProgramWriter(), _zeros(writer)
    shown.shapes = list(writer.shapes)
    shown.operators = [operator for operator in writer.operators if not isinstance(operator, ops.Output)]
    values = range(len(writer.shapes))
    for value in values:
        seen = value
        if value in zeros:
            seen = len(shown.shapes)
            shown.shapes.append(writer.shapes[value])
            shown.operators.append(Dequantise(x=value, out=seen, scale=np.ones(1, np.float32), zero=zeros[value]))
        shown.operators.append(ops.Output(x=seen))
    samples = len(inputs[0])
    given = [x.contiguous().numpy() for x in inputs]
    program = shown.build()
    outputs = [torch.empty(samples, *shape) for shape in program.outputs]
    told = torch.cat([each.to(torch.uint8) for each in decisions], 1).contiguous() if decisions else None
    program.run_at(
        [x.ctypes.data for x in given], [y.data_ptr() for y in outputs], samples, 1,
        forced=None if told is None else told.data_ptr(),
    )  # fmt: skip
    return dict(zip(values, outputs, strict=True))
