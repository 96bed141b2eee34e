"""Writes the units of a trace as operators of a program.

A convolution is written only when something reads it, for an addition or activation that follows becomes part of it.
Rules for operators (aten_rules.py), moves (moves.py) and gated modules (gated.py) write through it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.arranging import arranged, numbered
from sanp.engine.lowering.convolutions import spread_out, transposed, window_of
from sanp.engine.lowering.gate_weights import floats
from sanp.engine.lowering.known import (
    ChannelsLast,
    Known,
    Moved,
    Padded,
    Pending,
    Places,
    affine,
    last_index,
    takes_affine,
)
from sanp.engine.lowering.shapes import Floats, Shape, Window, sample_shape
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.lowering.writer import Writer
from sanp.spm.gated_conv import GatedConv
from sanp.tracing.graph import ConvolutionCall, Node, Trace, Value


class Lowering:
    """Writes one program from consecutive units of a trace.

    ``rules`` are by name of the aten operator. ``kept`` are the values that something outside of the program reads,
    ``readers`` says how many of the units read each value.
    """

    def __init__(
        self, trace: Trace, writer: Writer, rules: Mapping[str, "Rule"], kept: set[Value], readers: Mapping[Value, int]
    ) -> None:
        self.trace = trace
        self.writer = writer
        self._rules = rules
        self.inputs: list[Value] = []
        self.origin: list[str] = []
        """for every operator of the program, the unit it came from"""
        self.gated: list[GatedConv] = []
        """for every gate of the program, the module it came from"""
        self._kept = kept
        self._readers = readers
        self._of: dict[Value, Known] = {}

    def give(self, value: Value) -> None:
        """Marks a value that the caller gets."""
        if value not in self._of:
            raise Unsupported("an output that the program does not make, as the places of a maximum")
        self.writer.output(self.native(value))
        self.note("output")

    def note(self, name: str) -> None:
        """Says where the operators that were written since come from."""
        self.origin += [name] * (len(self.writer.operators) - len(self.origin))

    def rule(self, node: Node) -> "Rule":
        """The rule of a node's operator."""
        rule = self._rules.get(node.op) or self._rules.get(node.base_op)
        if rule is None:
            raise Unsupported(f"operator {node.op} is not known to the native part")
        return rule

    def shape(self, value: Value) -> torch.Size:
        """The traced shape, batch included."""
        return self.trace.shapes[value.index]

    def is_last_reader(self, value: Value) -> bool:
        """Whether one unit alone reads the value, so that it need not exist by itself."""
        return self._readers.get(value, 0) == 1 and value not in self._kept

    def native(self, value: Value) -> int:
        """The value's number in the program; what waits to be written is written now, what is unknown is an input."""
        known = self._of.get(value)
        if known is None:
            if self.shape(value)[0] != self.shape(self.trace.inputs[0])[0]:
                raise Unsupported("rows that are not those of the batch")
            known = self.writer.input(*sample_shape(self.shape(value)))
            self.inputs.append(value)
        elif isinstance(known, ChannelsLast):
            known = self.arranged(self.as_moved(value, known), sample_shape(self.shape(value)))
        elif isinstance(known, Moved):
            known = self.arranged(known, sample_shape(self.shape(value)))
        elif isinstance(known, Padded):
            known = self.padded(known)
        elif isinstance(known, Pending):
            known = self.write(known, IDENTITY)
        elif isinstance(known, Places):
            raise Unsupported("an output that the program does not make, as the places of a maximum")
        shape = sample_shape(self.shape(value))
        if self.writer.shapes[known] != shape:
            known = arranged(self.writer, known, numbered(shape), shape)
        self._of[value] = known
        return known

    def shaped(self, value: Value, shape: Shape) -> int:
        """The value's elements in their traced order, as a program's value of this shape."""
        return self.arranged(self.moved(value), shape)

    def moved(self, value: Value) -> Moved:
        """A value as elements of a program's value."""
        known = self._of.get(value)
        if isinstance(known, ChannelsLast):
            return self.as_moved(value, known)
        return known if isinstance(known, Moved) else Moved(self.native(value), numbered(self.shape(value)[1:]))

    def padded(self, padded: Padded) -> int:
        """A value with its zeros written out: the sum under windows of one pixel."""
        if padded.lowest:
            raise Unsupported("padding with -inf that no maximum reads")
        window = Window(kernel=(1, 1), padding=padded.before, padding_after=padded.after)
        size = window.out(self.writer.shapes[padded.base][1:])
        return self.writer.pool(padded.base, window, size, np.ones(size, np.float32))

    def written(self, last: ChannelsLast) -> int:
        """A map with its channels first, by its number in the program."""
        return self._written_out(last.inner)

    def pointwise(self, node: Node, last: ChannelsLast, weight: Floats, bias: Floats) -> Pending:
        """A linear layer at every pixel: a convolution with windows of one pixel."""
        path = self.trace.calls[node.call].path
        return Pending(path, self.written(last), weight[:, :, None, None], bias, Window(kernel=(1, 1)), 1)

    def as_moved(self, value: Value, last: ChannelsLast) -> Moved:
        """A map with its channels last as elements in another order."""
        shape = self.shape(value)
        if shape[0] != self.shape(self.trace.inputs[0])[0]:
            raise Unsupported("rows that are not those of the batch")
        base = self._written_out(last.inner)
        self._of[value] = ChannelsLast(base)
        return Moved(base, last_index(self.writer.shapes[base]).reshape(shape[1:]))

    def _written_out(self, inner: int | Pending) -> int:
        return self.write(inner, IDENTITY) if isinstance(inner, Pending) else inner

    def known(self, value: Value) -> Known | None:
        """What a traced value is in the program; None for one that comes from outside."""
        return self._of.get(value)

    def channels_last(self, value: Value) -> ChannelsLast | None:
        """The map behind a value that has its channels last; None for any other value.

        A convolution that waits to be written goes on waiting only if nothing else reads the value.
        """
        known = self._of.get(value)
        if isinstance(known, Moved) and known.index.dim() == 3:
            last = torch.equal(known.index, last_index(self.writer.shapes[known.base]))
            return ChannelsLast(known.base) if last else None
        if isinstance(known, ChannelsLast) and not self.is_last_reader(value):
            known = self._of[value] = ChannelsLast(self._written_out(known.inner))
        return known if isinstance(known, ChannelsLast) else None

    def channel_count(self, value: Value) -> int:
        """The channels of a value, which may have them last."""
        last = self.channels_last(value)
        return self.shape(value)[1 if last is None else -1]

    def define(self, value: Value | None, made: Known) -> None:
        """Says what a traced value is in the program."""
        assert value is not None
        self._of[value] = made

    def pending(self, value: Value) -> Pending | None:
        """The convolution that makes a value, if it can still take in what follows."""
        known = self._of.get(value)
        return known if isinstance(known, Pending) and self.is_last_reader(value) else None

    def activate(self, value: Value, act: Activation) -> "int | ChannelsLast":
        """act(value), inside the convolution that makes it where that is possible."""
        last = self.channels_last(value)
        if last is not None:
            waits = isinstance(last.inner, Pending)
            return ChannelsLast(
                self.write(last.inner, act) if waits else self.writer.activation(last.inner, act)  # type: ignore[arg-type]
            )
        waiting = self.pending(value)
        if waiting is not None:
            return self.write(waiting, act)
        return self.writer.activation(self.native(value), act)

    def add_values(self, a: Value, b: Value) -> "int | Pending | ChannelsLast":
        """a + b, inside the convolution that makes b or a where that is possible."""
        both = self.channels_last(a), self.channels_last(b)
        if both[0] is not None and both[1] is not None:
            return ChannelsLast(self.writer.add(self._written_out(both[0].inner), self._written_out(both[1].inner)))
        if a != b and sample_shape(self.shape(a)) == sample_shape(self.shape(b)):
            for host, other in ((b, a), (a, b)):
                waiting = self.pending(host)
                if waiting is not None and waiting.residual < 0 and waiting.spread is None:
                    return replace(waiting, residual=self.native(other))
        return self.writer.add(self.native(a), self.native(b))

    def scale_and_shift(
        self, value: Value, scale: Floats, shift: Floats, *, fills: bool
    ) -> "int | Pending | ChannelsLast":
        """scale · value + shift by channel, inside the convolution that makes it where that is possible."""
        last = self.channels_last(value)
        if last is not None:
            if isinstance(last.inner, Pending) and takes_affine(last.inner, scale, shift):
                return ChannelsLast(affine(last.inner, scale, shift))
            return ChannelsLast(self.writer.affine(self._written_out(last.inner), scale, shift, fills=fills))
        waiting = self.pending(value)
        if waiting is not None and takes_affine(waiting, scale, shift):
            return affine(waiting, scale, shift)
        return self.writer.affine(self.native(value), scale, shift, fills=fills)

    def constant(self, value: Value, channels: int, number: float) -> int:
        """A map of one number, of the size of a value: zero times that value, which is finite, plus the number."""
        none, shift = np.zeros(channels, np.float32), np.full(channels, number, np.float32)
        return self.writer.affine(self.native(value), none, shift, fills=number != 0)

    def write(self, conv: Pending, act: Activation) -> int:
        """Writes a convolution that waits, with an activation."""
        made = self._written(conv, act)
        self.note(conv.name)
        return made

    def write_plain(self, conv: Pending) -> int:
        """Writes a convolution that waits for nothing."""
        return self.write(conv, IDENTITY)

    def _written(self, conv: Pending, act: Activation) -> int:
        if conv.spread is not None:
            return spread_out(self.writer, conv, conv.spread, act)
        _, height, width = self.writer.shapes[conv.x]
        whole = conv.window.padding == conv.window.after == (0, 0)
        pointwise = conv.weight.shape[2:] == (1, 1) and conv.groups == 1 and whole
        if pointwise and height * width == 1 and conv.gate < 0 and conv.residual < 0:
            return self.writer.linear(conv.x, conv.weight[:, :, 0, 0], conv.bias, act)
        return self.writer.conv(
            conv.x, conv.weight, conv.bias, conv.window, groups=conv.groups, act=act, residual=conv.residual,
            gate=conv.gate, follows=conv.follows, scale_after=conv.act is not None,
        )  # fmt: skip

    def arranged(self, moved: Moved, shape: Shape) -> int:
        """A moved value as a program's value of this shape."""
        return arranged(self.writer, moved.base, moved.index, shape)

    def convolution(self, node: Node) -> Pending:
        """A traced convolution with constant weights; one over a sequence is one over a map of one row."""
        call = ConvolutionCall.of(node)
        weight, bias = call.weight, call.bias
        if not isinstance(weight, Tensor) or isinstance(bias, Value):
            raise Unsupported("a convolution whose weights depend on the input")
        path = self.trace.calls[node.call].path.removesuffix(".conv")
        if call.transposed:
            return transposed(path, self.native(call.input), call, self.shape(node.outputs[0]))  # type: ignore[arg-type]
        kernel, window = window_of(call, weight)
        x = self._of.get(call.input)
        if isinstance(x, Padded) and not x.lowest:
            window = window.reaching(x.before, x.after)
        shift = np.zeros(len(kernel), np.float32) if bias is None else floats(bias)
        read = x.base if isinstance(x, Padded) and not x.lowest else self.native(call.input)
        return Pending(path, read, kernel, shift, window, call.groups)


Rule = Callable[[Lowering, Node], None]
"""writes one operator of a trace; raises :class:`Unsupported` for one that the program's operators cannot express"""
