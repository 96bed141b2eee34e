"""Runs a compiled fp32 network on images and looks at the values that int8 needs ranges for."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.operators import Output
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.quantise.candidates import candidates
from sanp.engine.quantise.ranges import Histogram
from sanp.engine.quantise.stable_names import value_names
from sanp.engine.steps import NativeStep, TorchStep, Values
from sanp.tracing.graph import Value

LoweredStep = tuple[NativeStep | TorchStep, Lowering | None]
"""a step of an engine, and for a native one the lowering that wrote it"""
_TOGETHER = 16
"""samples that are looked at together"""


def histograms(stages: Sequence[LoweredStep], inputs: Sequence[Value], given: Sequence[Tensor]) -> dict[str, Histogram]:
    """A histogram of each value that needs a range, by its name, over all samples of ``given``."""
    watched = [_Watched(step, lowering) for step, lowering in stages]
    names = value_names([lowering for _, lowering in stages])
    found: dict[str, Histogram] = {}

    def widen(name: str, values: Tensor) -> None:
        ends = found.setdefault(name, Histogram(0.0, 0.0))
        ends.low, ends.top = min(ends.low, float(values.min())), max(ends.top, float(values.max()))

    _walk(watched, names, inputs, given, widen)
    _walk(watched, names, inputs, given, lambda name, values: found[name].add(values))
    return found


class _Watched:
    """A step whose values can be seen."""

    def __init__(self, step: NativeStep | TorchStep, lowering: Lowering | None) -> None:
        self.step = step
        self.values: list[int] = []
        if lowering is not None:
            assert isinstance(lowering.writer, ProgramWriter)
            self.values = sorted(candidates(lowering.writer).ranged)
            seen = ProgramWriter()
            seen.shapes = list(lowering.writer.shapes)
            seen.operators = [*lowering.writer.operators, *(Output(x=value) for value in self.values)]
            self.program = seen.build()

    def run(self, values: Values, batch: int) -> dict[int, Tensor]:
        """Runs the step; gives what was seen by number of the value."""
        found: dict[int, Tensor] = {}
        if isinstance(self.step, NativeStep) and self.values:
            outputs, _ = self.program.run([values[v].contiguous().numpy() for v in self.step.inputs], 1)
            found = {v: torch.from_numpy(y) for v, y in zip(self.values, outputs[-len(self.values) :], strict=True)}
        self.step.run(values, batch)
        return found


def _walk(
    watched: Sequence[_Watched],
    names: Sequence[dict[int, str]],
    inputs: Sequence[Value],
    given: Sequence[Tensor],
    look: Callable[[str, Tensor], None],
) -> None:
    for first in range(0, len(given[0]), _TOGETHER):
        batch = [tensor[first : first + _TOGETHER].contiguous() for tensor in given]
        values: Values = dict(zip(inputs, batch, strict=True))
        with torch.no_grad():
            for step, named in zip(watched, names, strict=True):
                for value, seen in step.run(values, len(batch[0])).items():
                    look(named[value], seen)
