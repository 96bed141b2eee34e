"""What int8 changes of each convolution by itself: the convolution on bytes of what it reads in fp32, beside fp32."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sanp.core.int8_calibration import Int8Calibration, Range
from sanp.engine.lowering.byte_operators import Quantise
from sanp.engine.lowering.lowering import Lowering
from sanp.engine.lowering.operators import Conv, Output
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.quantise.candidates import candidates
from sanp.engine.quantise.observing import LoweredStep
from sanp.engine.quantise.ranges import Steps
from sanp.engine.quantise.rewriting import byte_conv
from sanp.engine.quantise.stable_names import conv_names, value_names
from sanp.engine.steps import NativeStep, TorchStep, Values
from sanp.tracing.graph import Value

MOST_LAYER_ERROR = 0.1
"""a convolution whose output int8 changes by a larger share of its spread stays in fp32"""
_SAMPLES = 32
"""samples that layers are compared on"""
_TOGETHER = 2
"""samples that are compared in one call"""


def refusals(kept: Int8Calibration, names: Mapping[int, str]) -> dict[int, str]:
    """The convolutions of one stage that stay in fp32 because of what int8 changes, with the reason."""
    reasons = {}
    for number, name in names.items():
        if name in kept.fp32:
            error = kept.errors.get(name, 0.0)
            why = f"int8 changes its output by {error:.1%} of its spread"
            reasons[number] = why if error > MOST_LAYER_ERROR else f"{why}, and the network's by too much"
    return reasons


def layer_errors(
    stages: Sequence[LoweredStep], inputs: Sequence[Value], given: Sequence[Tensor], ranges: Mapping[str, Range]
) -> dict[str, float]:
    """For each convolution that can be computed on bytes, by name, the root mean square of what int8 changes.

    It is a share of the standard deviation of the channels of its output, over the first samples of ``given``.
    """
    lowerings = [lowering for _, lowering in stages]
    values, names = value_names(lowerings), conv_names(lowerings)
    compared = [
        _Compared(step, lowering, {value: ranges[name] for value, name in named.items()})
        for (step, lowering), named in zip(stages, values, strict=True)
    ]
    found: dict[str, _Sums] = {}
    count = min(_SAMPLES, len(given[0]))
    for first in range(0, count, _TOGETHER):
        batch = [tensor[first : min(first + _TOGETHER, count)].contiguous() for tensor in given]
        made: Values = dict(zip(inputs, batch, strict=True))
        with torch.no_grad():
            for stage, named in zip(compared, names, strict=True):
                for number, (fp32, int8) in stage.run(made, len(batch[0])).items():
                    found.setdefault(named[number], _Sums()).add(fp32, int8)
    return {name: sums.error for name, sums in found.items()}


@dataclass
class _Sums:
    """Of one layer: squares of differences, and sums and squares of each channel."""

    different: float = 0.0
    count: int = 0
    total: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    squares: float = 0.0

    def add(self, fp32: Tensor, int8: Tensor) -> None:
        self.different += float((fp32 - int8).double().square().sum())
        self.total = self.total + fp32.sum((0, 2, 3), dtype=torch.float64)
        self.squares += float(fp32.double().square().sum())
        self.count += fp32.numel() // fp32.shape[1]

    @property
    def error(self) -> float:
        spread = self.squares - float(self.total.square().sum()) / self.count
        return float((self.different / max(spread, 1e-30 * max(self.squares, 1e-30))) ** 0.5) if self.different else 0.0


class _Compared:
    """A step that computes each of its convolutions twice."""

    def __init__(self, step: NativeStep | TorchStep, lowering: Lowering | None, ranges: Mapping[int, Range]) -> None:
        self.step = step
        self.numbers: list[int] = []
        if lowering is None:
            return
        assert isinstance(lowering.writer, ProgramWriter)
        found, writer = candidates(lowering.writer), ProgramWriter()
        writer.shapes, self.numbers = list(lowering.writer.shapes), sorted(found.convolutions)
        extra = []
        for number, operator in enumerate(lowering.writer.operators):
            writer.operators.append(operator)
            if number not in found.convolutions:
                continue
            assert isinstance(operator, Conv)
            steps, none = Steps.of(ranges[found.roots[operator.x]]), Steps.of((0.0, 255.0))
            read, made = len(writer.shapes), len(writer.shapes) + 1
            writer.shapes += [writer.shapes[operator.x], writer.shapes[operator.out]]
            writer.operators.append(Quantise(x=operator.x, out=read, scale=steps.scale, zero=steps.zero))
            writer.operators.append(
                byte_conv(
                    operator, steps, x=read, residual=operator.residual, to_bytes=False, out=made, scale=none.scale,
                    out_zero=0, residual_scale=none.scale, residual_zero=0,
                )
            )  # fmt: skip
            extra += [Output(x=operator.out), Output(x=made)]
        writer.operators += extra
        self.program = writer.build()

    def run(self, values: Values, batch: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Runs the step; gives for each convolution its output in fp32 and in int8, by number of the operator."""
        found: dict[int, tuple[Tensor, Tensor]] = {}
        if isinstance(self.step, NativeStep) and self.numbers:
            outputs, _ = self.program.run([values[v].contiguous().numpy() for v in self.step.inputs], 1)
            extra = [torch.from_numpy(y) for y in outputs[-2 * len(self.numbers) :]]
            found = {number: (extra[2 * i], extra[2 * i + 1]) for i, number in enumerate(self.numbers)}
        self.step.run(values, batch)
        return found
