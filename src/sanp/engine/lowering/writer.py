"""What the lowering writes a program with: the native library's writer and ONNX's both have these methods."""

from collections.abc import Sequence
from typing import Protocol

from sanp.engine.lowering.activation import IDENTITY, Activation
from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.lowering.shapes import Between, Floats, Pair, Shape, Window


class Writer(Protocol):
    """Collects operators; a method that makes a value gives the value's number, a place in ``shapes``.

    A value holds one sample, (C, H, W). A channel that is not live is zero and takes no room.
    """

    @property
    def shapes(self) -> Sequence[Shape]:
        """The shape of every value so far."""
        ...

    @property
    def operators(self) -> Sequence[object]:
        """Every operator so far, in order of execution."""
        ...

    def input(self, channels: int, height: int, width: int) -> int:
        """A value that the caller gives."""
        ...

    def output(self, value: int) -> None:
        """Marks a value that the caller gets, with zeros for the channels that are not live."""
        ...

    def conv(
        self,
        x: int,
        weight: Floats,
        bias: Floats,
        window: Window,
        *,
        groups: int = 1,
        act: Activation = IDENTITY,
        residual: int = -1,
        gate: int = -1,
        follows: bool = False,
        scale_after: bool = False,
    ) -> int:
        """act(gate · (weight * x + bias) + residual), with weight (C_out, C_in / groups, height, width).

        ``residual`` is a value and ``gate`` a gate by its number; -1 stands for none. With ``follows``, an output
        channel none of whose input channels is live is zero: it gets no bias. With ``scale_after`` it is
        gate · act(weight * x + bias), without a residual.
        """
        ...

    def gate(self, x: int, weights: GateWeights) -> int:
        """Decides from x which output channels of a convolution are open; gives the gate's number, not a value's."""
        ...

    def linear(self, x: int, weight: Floats, bias: Floats, act: Activation = IDENTITY) -> int:
        """act(weight x + bias) of a vector, a map of one pixel, with weight (C_out, C_in)."""
        ...

    def pool(self, x: int, window: Window, size: Pair, inverse: Floats | None = None) -> int:
        """The largest number under each window, or with ``inverse`` (height, width) the sum times that number.

        ``size`` is that of the result: torch may let the last window reach over the edge.
        """
        ...

    def adaptive(self, x: int, size: Pair, *, maximum: bool) -> int:
        """Adaptive pooling to a size: the largest number of each window, or the mean."""
        ...

    def activation(self, x: int, act: Activation) -> int:
        """act(x)."""
        ...

    def add(self, a: int, b: int, act: Activation = IDENTITY) -> int:
        """act(a + b); a channel is live if it is live in a or in b."""
        ...

    def multiply(self, a: int, b: int) -> int:
        """a · b, where b has the same shape or one number for each channel; live is what is live in both."""
        ...

    def affine(self, x: int, scale: Floats, shift: Floats, *, fills: bool = True) -> int:
        """scale · x + shift, with one of each for each channel.

        Without ``fills`` a pruned channel stays pruned; then every shift must be zero.
        """
        ...

    def layer_norm(self, x: int, scale: Floats, shift: Floats, eps: float) -> int:
        """(x - mean) / sqrt(var + eps) · scale + shift, with mean and variance over the channels of each pixel."""
        ...

    def concat(self, values: Sequence[int]) -> int:
        """The channels of several values, one after the other."""
        ...

    def channels(self, x: int, source: Sequence[int]) -> int:
        """Channel c of the result is channel source[c] of x: slices, splits and shuffles of channels."""
        ...

    def flatten(self, x: int) -> int:
        """Every element of x as a channel of its own."""
        ...

    def gather(self, x: int, rows: Sequence[int], columns: Sequence[int], shape: Shape) -> int:
        """A value of this shape: element p of channel c is element rows[c] + columns[p] of x, 0 if columns[p] is -1.

        The parts of a sum must not carry: neither its channel nor its pixel is more than the sum of theirs. With a row
        for every element and the only column 0, rows may be -1 too.
        """
        ...

    def instance_norm(self, x: int, scale: Floats, shift: Floats, eps: float, gate: int = -1) -> int:
        """gate · (scale · (x - mean) / sqrt(var + eps) + shift), with mean and variance over each channel's pixels."""
        ...

    def softmax(self, x: int, *, logarithm: bool = False) -> int:
        """Over the rows of each channel, column by column; or the logarithm of that."""
        ...

    def resize(self, x: int, rows: Between, columns: Between) -> int:
        """Every row and column between two of x."""
        ...

    def unpool(self, a: int, b: int, window: Window) -> int:
        """Each number of a at the place of the largest of b under its window, zeros elsewhere."""
        ...

    def power(self, x: int, exponent: float) -> int:
        """Every element to a power."""
        ...
