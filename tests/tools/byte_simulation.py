"""A whole program on bytes, simulated in torch: the same scales and zero points, sums in whole numbers.

Values hold every channel, with zeros where one is pruned. Bytes are kept less their zero point.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sanp.engine.lowering import operators as ops
from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.byte_operators import (
    ByteAverage,
    ByteCombine,
    ByteConv,
    ByteMean,
    BytePool,
    Dequantise,
    Quantise,
)
from sanp.engine.lowering.program import ProgramWriter
from sanp.engine.lowering.shapes import Floats, Pair, Window
from tests.tools.byte_reference import activated, averaged, bounds_of, combined, fills


class Simulation:
    """Runs a program on a batch; ``decisions`` has for each gate (N, C), 1 for an open channel."""

    def __init__(self, writer: ProgramWriter, inputs: Sequence[Tensor], decisions: Sequence[Tensor]) -> None:
        self.writer, self.decisions = writer, list(decisions)
        self.inputs = [x.double() for x in inputs]
        self.values: dict[int, Tensor] = {}
        self.live: dict[int, Tensor] = {}
        """(N, C): which channels of a value are not pruned"""
        self.gates: list[tuple[Tensor, Tensor]] = []
        """of each gate, what is open and what it is multiplied by"""
        self.outputs: list[Tensor] = []
        self.largest_sum = 0.0
        for operator in writer.operators:
            self._take(operator)

    def _take(self, operator: ops.Operator) -> None:
        match operator:
            case ops.Output(x=x):
                self.outputs.append(self.values[x])
            case ops.Gate():
                self._gate(operator)
            case ops.Input(out=out):
                taken = self.inputs.pop(0)
                self._keep(out, taken.reshape(len(taken), *self.writer.shapes[out]))
            case ops.Conv() | ByteConv():
                self._conv(operator)
            case _:
                self._keep(operator.out, self._plain(operator), self._live_after(operator))

    def _keep(self, out: int, made: Tensor, live: Tensor | None = None) -> None:
        self.values[out] = made
        self.live[out] = torch.ones(made.shape[:2], dtype=torch.bool) if live is None else live

    def _gate(self, gate: ops.Gate) -> None:
        g, x = gate.weights, self.values[gate.x]
        d = (x.abs() if g.absolute else x).mean((2, 3))
        hidden = (d @ _double(g.w1).T + _double(g.b1)).relu()
        saliency = hidden @ _double(g.w2).T + _double(g.b2)
        scale = saliency.clamp(max=g.most) if g.scales else torch.ones_like(saliency)
        self.gates.append((self.decisions[len(self.gates)].bool(), scale))

    def _conv(self, conv: ops.Conv | ByteConv) -> None:
        x, shape = self.values[conv.x], self.writer.shapes[conv.out]
        padded = _padded(x, conv.window, shape[1:], 0.0)  # bytes are less their zero point, which lies around the map
        window = conv.window
        y = F.conv2d(padded, _double(conv.weight), stride=window.stride, dilation=window.dilation, groups=conv.groups)
        if isinstance(conv, ByteConv):
            self.largest_sum = max(self.largest_sum, float(y.abs().max()))
            y = y * _double(conv.multiplier)[:, None, None]
        y = y + _double(conv.bias)[:, None, None]
        opened, scale = self.gates[conv.gate] if conv.gate >= 0 else (torch.ones(y.shape[:2]).bool(), torch.ones(1))
        if conv.follows:
            reached = self.live[conv.x].reshape(len(x), conv.groups, -1).any(2)
            opened = opened & reached.repeat_interleave(y.shape[1] // conv.groups, 1)
        factor = torch.where(opened, scale.expand_as(opened), 0.0)[..., None, None].double()
        y = self._activated(conv.act, y) * factor if conv.scale_after else y * factor
        live = opened
        if conv.residual >= 0:
            unit = float(conv.residual_scale[0]) if isinstance(conv, ByteConv) else 1.0  # that of floats is 1
            y, live = y + self.values[conv.residual] * unit, live | self.live[conv.residual]
        if not conv.scale_after:
            y = self._activated(conv.act, y)
        if isinstance(conv, ByteConv) and conv.to_bytes:
            steps = (y / float(conv.scale[0]) + conv.out_zero).round()
            y = steps.clamp(*bounds_of(conv)) - conv.out_zero
        of_zero = self._activated(conv.act, torch.zeros(1, shape[0], 1, 1, dtype=torch.float64))
        self._keep(conv.out, y, live | (not conv.scale_after and bool(of_zero.any())))

    @staticmethod
    def _activated(act: Activation, y: Tensor) -> Tensor:
        return torch.from_numpy(activated(act, y.numpy()))

    def _plain(self, operator: ops.Operator) -> Tensor:
        values, shapes = self.values, self.writer.shapes
        match operator:
            case Quantise(x=x, scale=scale, zero=zero):
                return (values[x] / float(scale[0]) + zero).round().clamp(0, 255) - zero
            case Dequantise(x=x, scale=scale):
                return values[x] * float(scale[0])
            case ByteMean(x=x, scale=scale):
                return values[x].mean((2, 3), keepdim=True) * float(scale[0])
            case BytePool(x=x, out=out, window=window):
                return _largest(values[x], window, shapes[out][1:])
            case ByteAverage(x=x, zero=zero):
                return torch.from_numpy(averaged(operator, values[x].numpy())).round().clamp(0, 255) - zero
            case ByteCombine(values=read, zero=zero):
                live = [self.live[value].numpy() for value in read]
                made = combined(operator, [values[value].numpy() for value in read], live)
                return torch.from_numpy(made).round().clamp(0, 255) - zero
            case ops.Pool(x=x, out=out, window=window, inverse=inverse):
                if inverse is None:
                    return _largest(values[x], window, shapes[out][1:])
                return _windows(_padded(values[x], window, shapes[out][1:], 0.0), window, shapes[out][1:]).sum(
                    0
                ) * _double(inverse).reshape(shapes[out][1:])
            case ops.Adaptive(x=x, out=out, maximum=maximum):
                pool = F.adaptive_max_pool2d if maximum else F.adaptive_avg_pool2d
                return pool(values[x], shapes[out][1:])
            case ops.Activate(x=x, act=act):
                return self._activated(act, values[x])
            case ops.Add(a=a, b=b, act=act):
                return self._activated(act, values[a] + values[b])
            case ops.Multiply(a=a, b=b):
                return values[a] * values[b]
            case ops.Affine(x=x, scale=scale, shift=shift, act=act):
                return self._activated(act, values[x] * _double(scale)[:, None, None] + _double(shift)[:, None, None])
            case ops.Concat(values=joined):
                return torch.cat([values[value] for value in joined], 1)
            case ops.Channels(x=x, source=source):
                return values[x][:, list(source)]
            case ops.Flatten(x=x):
                return values[x].flatten(1)[..., None, None]
            case ops.Linear(x=x, weight=weight, bias=bias, act=act):
                y = values[x].flatten(1) @ _double(weight).T + _double(bias)
                return self._activated(act, y[..., None, None])
            case ops.LayerNorm(x=x, scale=scale, shift=shift, eps=eps):
                y = values[x]
                d = (y - y.mean(1, keepdim=True)) / (y.var(1, keepdim=True, unbiased=False) + float(eps[0])).sqrt()
                return d * _double(scale)[:, None, None] + _double(shift)[:, None, None]
        raise AssertionError(operator)

    def _live_after(self, operator: ops.Operator) -> Tensor | None:
        live = self.live
        match operator:
            case Quantise(x=x) | Dequantise(x=x) | ByteMean(x=x) | BytePool(x=x) | ops.Pool(x=x) | ops.Adaptive(x=x):
                return live[x]
            case ByteAverage(x=x):
                return live[x]
            case ByteCombine(values=read, terms=terms, act=act):
                found = [[live[read[place]][:, c] for place, c in pair if place >= 0] for pair in _pairs(terms)]
                made = [sum(each, torch.full_like(live[read[0]][:, 0], fills(act))).bool() for each in found]  # type: ignore[arg-type]
                return torch.stack(made, 1)
            case ops.Activate(x=x, act=act) if act.kind not in ("sigmoid", "hardsigmoid"):
                return live[x]
            case ops.Add(a=a, b=b):
                return live[a] | live[b]
            case ops.Multiply(a=a, b=b):
                return live[a] & live[b]
            case ops.Affine(x=x, fills=False):
                return live[x]
            case ops.Concat(values=joined):
                return torch.cat([live[value] for value in joined], 1)
            case ops.Channels(x=x, source=source):
                return live[x][:, list(source)]
        return None


def _pairs(terms: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Of every channel of a combination its two terms: a place among the values and a channel."""
    return [[(terms[i], terms[i + 1]), (terms[i + 2], terms[i + 3])] for i in range(0, len(terms), 4)]


def _double(array: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array).astype(np.float64))


def _padded(x: Tensor, window: Window, size: Pair, edge: float) -> Tensor:
    """The map with as much around it as the windows reach over it."""
    extents = zip(size, window.stride, window.dilation, window.kernel, strict=True)
    reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in extents]
    (top, left), (height, width) = window.padding, x.shape[2:]
    return F.pad(x, (left, reach[1] - width - left, top, reach[0] - height - top), value=edge)


def _windows(padded: Tensor, window: Window, size: Pair) -> Tensor:
    """What each tap of the window reads: (taps, N, C, height, width)."""
    parts = []
    for y in range(window.kernel[0]):
        for x in range(window.kernel[1]):
            top, left = y * window.dilation[0], x * window.dilation[1]
            part = padded[:, :, top :: window.stride[0], left :: window.stride[1]]
            parts.append(part[:, :, : size[0], : size[1]])
    return torch.stack(parts)


def _largest(x: Tensor, window: Window, size: Pair) -> Tensor:
    return _windows(_padded(x, window, size, float("-inf")), window, size).amax(0)
