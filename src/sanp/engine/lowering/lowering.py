"""Writes the units of a trace as operators of a program.

A convolution is written only when something reads it, for an addition or activation that follows becomes part of it.
Operators that only move numbers are run on the numbers of the elements, so that no rule need know what they mean.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.elementwise import ACTIVATIONS, BATCH_NORMS, activation_of, batch_norm_of, constant_of
from sanp.engine.lowering.gate_weights import floats, gate_weights
from sanp.engine.lowering.shapes import Floats, Pair, Shape, Window, pair, sample_shape
from sanp.engine.lowering.units import Unit
from sanp.engine.lowering.unsupported import Unsupported
from sanp.engine.lowering.writer import Writer
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.tracing.graph import ConvolutionCall, Node, Trace, Value


@dataclass(frozen=True)
class Moved:
    """A traced value whose elements are those of a program's value in another order."""

    base: int
    """the program's value"""
    index: Tensor
    """numbers of elements of one sample of the base, in the traced value's shape without the batch"""


@dataclass(frozen=True)
class Padded:
    """A program's value with zeros around its maps, which the convolution that reads it adds by itself."""

    base: int
    before: Pair
    """rows above and columns on the left"""
    after: Pair
    """rows below and columns on the right"""


@dataclass(frozen=True)
class Pending:
    """A convolution that is not written yet: what follows it may still become part of it.

    ``gate`` and ``residual`` are numbers in the program, -1 for none; the fields are the arguments of
    :meth:`Writer.conv`.
    """

    name: str
    """path of the module"""
    x: int
    weight: Floats
    bias: Floats
    window: Window
    groups: int
    gate: int = -1
    follows: bool = False
    residual: int = -1
    act: Activation | None = None
    """an activation that comes before the gate's product; then nothing else can be taken in"""


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
        self._of: dict[Value, int | Moved | Padded | Pending] = {}

    def add(self, unit: Unit) -> None:
        """Writes a unit; raises :class:`Unsupported` if no rule can."""
        if isinstance(unit.module, GatedConv | FollowingConv):
            self._gated(unit, unit.module)
        else:
            rule = self._rule(unit.node)
            rule(self, unit.node)
        self._note(unit.name)

    def give(self, value: Value) -> None:
        """Marks a value that the caller gets."""
        if value not in self._of:
            raise Unsupported("an output that the program does not make, as the places of a maximum")
        self.writer.output(self.native(value))
        self._note("output")

    def _note(self, name: str) -> None:
        self.origin += [name] * (len(self.writer.operators) - len(self.origin))

    def _rule(self, node: Node) -> "Rule":
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
            known = self.writer.input(*sample_shape(self.shape(value)))
            self.inputs.append(value)
        elif isinstance(known, Moved):
            known = self._arranged(known, sample_shape(self.shape(value)))
        elif isinstance(known, Padded):
            known = self._padded(known)
        elif isinstance(known, Pending):
            known = self._write(known, IDENTITY)
        self._of[value] = known
        return known

    def _padded(self, padded: Padded) -> int:
        """A value with its zeros written out: the sum under windows of one pixel."""
        window = Window(kernel=(1, 1), padding=padded.before, padding_after=padded.after)
        size = window.out(self.writer.shapes[padded.base][1:])
        return self.writer.pool(padded.base, window, size, np.ones(size, np.float32))

    def define(self, value: Value | None, made: "int | Moved | Padded | Pending") -> None:
        """Says what a traced value is in the program."""
        assert value is not None
        self._of[value] = made

    def pending(self, value: Value) -> Pending | None:
        """The convolution that makes a value, if it can still take in what follows."""
        known = self._of.get(value)
        return known if isinstance(known, Pending) and self.is_last_reader(value) else None

    def activate(self, value: Value, act: Activation) -> int:
        """act(value), inside the convolution that makes it where that is possible."""
        waiting = self.pending(value)
        if waiting is not None:
            return self._write(waiting, act)
        return self.writer.activation(self.native(value), act)

    def add_values(self, a: Value, b: Value) -> "int | Pending":
        """a + b, inside the convolution that makes b or a where that is possible."""
        if a != b and sample_shape(self.shape(a)) == sample_shape(self.shape(b)):
            for host, other in ((b, a), (a, b)):
                waiting = self.pending(host)
                if waiting is not None and waiting.residual < 0:
                    return replace(waiting, residual=self.native(other))
        return self.writer.add(self.native(a), self.native(b))

    def scale_and_shift(self, value: Value, scale: Floats, shift: Floats, *, fills: bool) -> "int | Pending":
        """scale · value + shift by channel, inside the convolution that makes it where that is dense and waiting."""
        waiting = self.pending(value)
        if waiting is not None and waiting.gate < 0 and not waiting.follows and waiting.residual < 0:
            return _affine(waiting, scale, shift)
        return self.writer.affine(self.native(value), scale, shift, fills=fills)

    def _write(self, conv: Pending, act: Activation) -> int:
        made = self._written(conv, act)
        self._note(conv.name)
        return made

    def _written(self, conv: Pending, act: Activation) -> int:
        _, height, width = self.writer.shapes[conv.x]
        whole = conv.window.padding == conv.window.after == (0, 0)
        pointwise = conv.weight.shape[2:] == (1, 1) and conv.groups == 1 and whole
        if pointwise and height * width == 1 and conv.gate < 0 and conv.residual < 0:
            return self.writer.linear(conv.x, conv.weight[:, :, 0, 0], conv.bias, act)
        return self.writer.conv(
            conv.x, conv.weight, conv.bias, conv.window, groups=conv.groups, act=act, residual=conv.residual,
            gate=conv.gate, follows=conv.follows, scale_after=conv.act is not None,
        )  # fmt: skip

    def _arranged(self, moved: Moved, shape: Shape) -> int:
        """A moved value as a choice of channels, a flattening, or both."""
        channels, height, width = self.writer.shapes[moved.base]
        index, pixels = moved.index.reshape(shape[0], -1), height * width
        base = moved.base
        if (height, width) == shape[1:]:
            source = index[:, 0] // pixels
            if not torch.equal(index, source[:, None] * pixels + torch.arange(pixels)):
                raise Unsupported("pixels in another order")
        elif shape[1:] == (1, 1):
            base, source, channels = self.writer.flatten(base), index[:, 0], channels * pixels
        else:
            raise Unsupported("a map reshaped to another size")
        if torch.equal(source, torch.arange(channels)):
            return base
        return self.writer.channels(base, source.tolist())

    def move(self, node: Node) -> None:
        """Runs an operator that only moves numbers on the numbers of the elements of a batch."""
        source = node.inputs()[0]
        known = self._of.get(source)
        moved = known if isinstance(known, Moved) else None
        if moved is None:
            base, shape = self.native(source), self.shape(source)[1:]
            moved = Moved(base, torch.arange(shape.numel()).reshape(shape))
        batch, each = self.shape(source)[0], int(np.prod(self.writer.shapes[moved.base]))
        numbers = moved.index + torch.arange(batch).reshape(-1, *(1,) * moved.index.dim()) * each
        args = [numbers if argument == source else argument for argument in node.args]
        made = node.func(*args, **node.kwargs)
        results = made if isinstance(made, list | tuple) else [made]
        for value, result in zip(node.outputs, results, strict=True):
            apart = result - torch.arange(len(result)).reshape(-1, *(1,) * (result.dim() - 1)) * each
            if len(result) != batch or not torch.equal(apart, apart[:1].expand_as(apart)) or int(apart.min()) < 0:
                raise Unsupported(f"{node.op} mixes the samples of a batch")
            self.define(value, Moved(moved.base, apart[0]))

    def _gated(self, unit: Unit, module: GatedConv | FollowingConv) -> None:
        if module.norm_outside:
            raise Unsupported("a gate that waits for a batch norm outside its module")
        convolutions = [node for node in unit.nodes if node.op == "convolution"]
        if len(convolutions) != 1 or not self._reads(unit, ConvolutionCall.of(convolutions[0]).input):
            raise Unsupported("a gated module that is not one convolution of its input")
        conv = self._followed(unit, convolutions[0])
        if isinstance(module, GatedConv):
            conv = replace(conv, gate=self._gate(unit.inputs[0], module))
            self.gated.append(module)
            self._note(unit.name)
        else:
            if conv.weight.shape[1] != 1 or not set(self.inputs) <= set(self.trace.inputs):
                raise Unsupported("a depthwise convolution that follows gates outside the native part")
            conv = replace(conv, follows=True)
        self.define(unit.outputs[0], conv if conv.act is None else self._write(conv, conv.act))

    def _reads(self, unit: Unit, value: Value) -> bool:
        """Whether a value is a gated module's input, or that with the zeros that the module itself puts around it."""
        if value == unit.inputs[0]:
            return True
        maker = next((node for node in unit.nodes if value in node.outputs), None)
        if maker is None or maker.op != "constant_pad_nd" or maker.args[0] != unit.inputs[0]:
            return False
        self._rule(maker)(self, maker)
        return True

    def _gate(self, value: Value, module: GatedConv) -> int:
        """The gate of a module that reads this value."""
        weights, known = gate_weights(module.spm), self._of.get(value)
        if not isinstance(known, Padded):
            return self.writer.gate(self.native(value), weights)
        # The SPM takes its means over the zeros as well.
        pixels = np.prod(self.writer.shapes[known.base][1:]) / np.prod(sample_shape(self.shape(value))[1:])
        return self.writer.gate(known.base, replace(weights, w1=weights.w1 * np.float32(pixels)))

    def _followed(self, unit: Unit, node: Node) -> Pending:
        """The convolution of a gated module with what its batch norm does, as it was traced, up to the gate's product.

        A batch norm may be anybody's module: what counts is which operators it ran, an activation among them.
        """
        conv, value = self.convolution(node), node.outputs[0]
        for after in unit.nodes[unit.nodes.index(node) + 1 :]:
            if after.outputs[0] == unit.outputs[0]:
                if after.op != "mul" or after.args[0] != value:
                    break
                return conv
            if value in after.inputs():
                conv, value = self._with(conv, after, value), after.outputs[0]
        raise Unsupported("a gated module that is not one convolution, a batch norm and a gate")

    def _with(self, conv: Pending, node: Node, value: Value | None) -> Pending:
        """A convolution that takes in the operator that alone reads its output."""
        assert value is not None
        if node.inputs() != [value] or conv.act is not None:
            raise Unsupported(f"{node.op} between a convolution and its gate")
        if node.base_op in ACTIVATIONS:
            return replace(conv, act=activation_of(node, self.shape(value)[1]))
        if node.base_op in ("alias", "detach", "clone"):
            return conv
        if node.base_op in BATCH_NORMS:
            scale, shift = batch_norm_of(node)
        elif node.base_op in ("add", "sub", "mul", "div"):
            scale, shift = constant_of(node, self.shape(value))
        else:
            raise Unsupported(f"{node.op} between a convolution and its gate")
        return _affine(conv, scale, shift)

    def convolution(self, node: Node) -> Pending:
        """A traced convolution with constant weights; one over a sequence is one over a map of one row."""
        call = ConvolutionCall.of(node)
        weight, bias = call.weight, call.bias
        if not isinstance(weight, Tensor) or isinstance(bias, Value) or call.transposed:
            raise Unsupported("a transposed convolution, or one whose weights depend on the input")
        if weight.dim() not in (3, 4) or weight.dtype != torch.float32:
            raise Unsupported(f"a convolution over {weight.dim() - 2} dimensions in {weight.dtype}")
        pairs = [pair(given) for given in (call.stride, call.padding, call.dilation)]
        kernel = floats(weight) if weight.dim() == 4 else floats(weight)[:, :, None]
        if weight.dim() == 3:
            pairs = [(1, pairs[0][1]), (0, pairs[1][1]), (1, pairs[2][1])]
        if kernel.shape[2] * kernel.shape[3] > 1024:
            raise Unsupported("a kernel of more than 1024 taps")
        window = Window(kernel=kernel.shape[2:], stride=pairs[0], padding=pairs[1], dilation=pairs[2])
        x = self._of.get(call.input)
        if isinstance(x, Padded):
            window = replace(window, padding=_sum(x.before, pairs[1]), padding_after=_sum(x.after, pairs[1]))
        shift = np.zeros(len(kernel), np.float32) if bias is None else floats(bias)
        path = self.trace.calls[node.call].path
        read = x.base if isinstance(x, Padded) else self.native(call.input)
        return Pending(path.removesuffix(".conv"), read, kernel, shift, window, call.groups)


Rule = Callable[[Lowering, Node], None]
"""writes one operator of a trace; raises :class:`Unsupported` for one that the program's operators cannot express"""


def _sum(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _affine(conv: Pending, scale: Floats, shift: Floats) -> Pending:
    """scale · conv + shift by channel."""
    rows = scale.reshape(-1, *(1,) * (conv.weight.ndim - 1))
    return replace(conv, weight=conv.weight * rows, bias=conv.bias * scale + shift)
