"""Writes a program's operators again as an ONNX graph, with convolutions on bytes where its calibration has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sanp.core.int8_calibration import Range
from sanp.engine.lowering import operators as ops
from sanp.engine.lowering.other_operators import Gather, InstanceNorm, Power, Softmax
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.onnx.writer import OnnxWriter
from sanp.engine.quantise.candidates import Candidates, candidates
from sanp.engine.quantise.ranges import Steps


def replayed(
    written: ProgramWriter, ranges: Mapping[int, Range], refused: Mapping[int, str], *, skips: bool
) -> OnnxWriter:
    """The graph of a program whose values have these ranges; ``refused`` are convolutions that stay in fp32."""
    replay = _Replay(written, candidates(written, refused), ranges, OnnxWriter(skips=skips))
    for number, operator in enumerate(written.operators):
        replay.take(number, operator)
    return replay.writer


@dataclass
class _Replay:
    """Takes the operators of a program one by one."""

    written: ProgramWriter
    found: Candidates
    ranges: Mapping[int, Range]
    writer: OnnxWriter
    of: dict[int, int] = field(default_factory=dict)
    """values of the program by their number in the graph"""

    def take(self, number: int, operator: ops.Operator) -> None:
        """Writes one operator."""
        if isinstance(operator, ops.Gate):
            self.writer.gate(self.of[operator.x], operator.weights)
        elif isinstance(operator, ops.Output):
            self.writer.output(self.of[operator.x])
        elif isinstance(operator, ops.Conv):
            self.of[operator.out] = self._conv(number, operator)
        else:
            made = self._other(operator)
            on_bytes = number in self.found.others
            self.of[operator.out] = self.writer.rounded(made, self._steps(operator.out)) if on_bytes else made

    def _conv(self, number: int, conv: ops.Conv) -> int:
        steps = self._steps(conv.x) if number in self.found.convolutions else None
        residual = conv.residual if conv.residual < 0 else self.of[conv.residual]
        made = self.writer.conv(
            self.of[conv.x], conv.weight, conv.bias, conv.window, groups=conv.groups, act=conv.act, residual=residual,
            gate=conv.gate, follows=conv.follows, scale_after=conv.scale_after, steps=steps,
        )  # fmt: skip
        # What a convolution on bytes makes for another one is bytes, whoever else reads it.
        to_bytes = steps is not None and self.found.roots[conv.out] in self.found.ranged
        return self.writer.rounded(made, self._steps(conv.out)) if to_bytes else made

    def _steps(self, value: int) -> Steps:
        return Steps.of(self.ranges[self.found.roots[value]])

    def _other(self, operator: ops.Operator) -> int:
        writer, of = self.writer, self.of
        match operator:
            case ops.Input(out=out):
                return writer.input(*self.written.shapes[out])
            case ops.Linear(x=x, weight=weight, bias=bias, act=act):
                return writer.linear(of[x], weight, bias, act)
            case ops.Pool(x=x, out=out, window=window, inverse=inverse):
                return writer.pool(of[x], window, self.written.shapes[out][1:], inverse)
            case ops.Adaptive(x=x, out=out, maximum=maximum):
                return writer.adaptive(of[x], self.written.shapes[out][1:], maximum=maximum)
            case ops.Activate(x=x, act=act):
                return writer.activation(of[x], act)
            case ops.Add(a=a, b=b, act=act):
                return writer.add(of[a], of[b], act)
            case ops.Multiply(a=a, b=b):
                return writer.multiply(of[a], of[b])
            case ops.Affine(x=x, scale=scale, shift=shift, fills=fills, act=act):
                made = writer.affine(of[x], scale, shift, fills=fills)
                return made if act.kind == "none" else writer.activation(made, act)
            case ops.Concat(values=values):
                return writer.concat([of[value] for value in values])
            case ops.Channels(x=x, source=source):
                return writer.channels(of[x], source)
            case ops.Flatten(x=x):
                return writer.flatten(of[x])
            case ops.LayerNorm(x=x, scale=scale, shift=shift, eps=eps):
                return writer.layer_norm(of[x], scale, shift, float(eps[0]))
            case Gather(x=x, out=out, row=row, column=column):
                return writer.gather(of[x], row, column, self.written.shapes[out])
            case InstanceNorm(x=x, scale=scale, shift=shift, eps=eps, gate=gate):
                return writer.instance_norm(of[x], scale, shift, float(eps[0]), gate)
            case Softmax(x=x, logarithm=logarithm):
                return writer.softmax(of[x], logarithm=logarithm)
            case Power(x=x, exponent=exponent):
                return writer.power(of[x], float(exponent[0]))
        raise Unsupported(f"the operator {type(operator).__name__}")
