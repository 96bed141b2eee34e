"""Random operators for the native library, each beside the same in torch's double precision."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.gate_weights import GateWeights
from sanp.engine.lowering.shapes import Window
from tests.tools.engine_case import Case
from tests.tools.other_engine_steps import OTHER_STEPS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def _act(case: Case, channels: int) -> tuple[Activation, Callable[[Tensor], Tensor]]:
    kind = case.dice.choice(["none", "none", "relu", "relu", "clip", "leaky", "prelu", "elu", *ACTIVATIONS])
    if kind == "none":
        return Activation(), lambda x: x
    if kind == "clip":
        low, high = sorted((case.dice.uniform(-1, 1), case.dice.uniform(-1, 1)))
        return Activation("clip", low, high), lambda x: x.clamp(np.float32(low), np.float32(high))
    if kind == "leaky":
        return Activation("leaky", 0.1), lambda x: F.leaky_relu(x, 0.1)
    if kind == "elu":
        return Activation("elu", 0.7), lambda x: F.elu(x, 0.7)
    if kind == "prelu":
        slope = case.randn(channels)
        return Activation("prelu", slope=slope), lambda x: F.prelu(x, torch.from_numpy(slope).double())
    return Activation(kind), ACTIVATIONS[kind]


def _after(case: Case, x: Tensor, live: Tensor, act: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The activation, and the channels that are not pruned after it."""
    case.largest = max(case.largest, float(x.abs().max()))
    fills = float(act(torch.zeros(1, x.shape[1], 1, 1, dtype=torch.float64)).abs().max()) != 0
    return act(x), torch.ones_like(live) if fills else live


def _gate(case: Case, number: int, x: Tensor, out: int) -> tuple[int, Tensor]:
    """A gate on a value: its number, and the factor of every channel (N, C_out)."""
    dice = case.dice
    hidden = dice.choice([0, 1, 3, 9])
    group = dice.choice([g for g in (1, 1, 2, 4) if out % g == 0])
    w1, b1, w2 = case.randn(hidden, x.shape[1]), case.randn(hidden), case.randn(out, hidden)
    w1 /= np.float32(x.shape[1] ** 0.5)
    b2, threshold = case.randn(out), np.full(out, dice.choice([0.0, -0.3, 0.5]), np.float32)
    which = dice.choice(["some", "some", "none", "one", "all"])
    if which != "some":
        hidden, w1, b1, w2 = 0, w1[:0], b1[:0], w2[:, :0]
        threshold[:] = 0
        b2 = -np.abs(b2) - 0.1 if which != "all" else np.abs(b2) + 0.1
        if which == "one":
            first = dice.randrange(out // group) * group
            b2[first : first + group] = 1
    top = dice.choice([0, 0, 0, dice.randint(1, out // group)])
    scales = dice.random() < 0.7
    d = x.mean((2, 3))
    s = F.relu(d @ torch.from_numpy(w1.T).double() + torch.from_numpy(b1).double()) @ torch.from_numpy(w2.T).double()
    s = s + torch.from_numpy(b2).double()
    score = (s - torch.from_numpy(threshold).double()).unflatten(1, (-1, group)).mean(2)
    ranked = score.sort(1).values
    gaps = ranked.diff(dim=1).abs().min() if ranked.shape[1] > 1 else torch.tensor(1.0)
    if hidden and float(torch.minimum(score.abs().min(), gaps)) < 1e-4:  # rounding would decide
        return -1, torch.ones(len(x), out, dtype=torch.float64)
    if top:
        open_ = torch.zeros_like(score).scatter_(1, score.topk(top, dim=1).indices, 1)
    else:
        best = torch.zeros_like(score).scatter_(1, score.argmax(1, keepdim=True), 1)
        open_ = torch.where((score > 0).any(1, keepdim=True), (score > 0).double(), best)
    most = dice.choice([math.inf, math.inf, 0.5])
    weights = GateWeights(
        w1=w1, b1=b1, w2=w2, b2=b2, threshold=threshold, group=group, top=top, scales=scales, most=most
    )
    open_ = open_.repeat_interleave(group, 1)
    case.story.append(f"gate({which}, hidden {hidden}, group {group}, top {top}, most {most})")
    return case.writer.gate(number, weights), open_ * s.clamp(max=most) if scales else open_


def _window(case: Case, size: tuple[int, int], largest: int) -> Window:
    dice = case.dice
    stride, edge = dice.choice([1, 1, 2]), dice.choice([0, 1, 1, 2])
    if dice.random() < 0.5 and min(size) + 2 * edge >= 3:  # what Winograd's schemes take
        after = dice.choice([None, None, (edge + 1, edge), (max(0, edge - 1), edge + 2)])
        window = Window(kernel=(3, 3), stride=(stride, stride), padding=(edge, edge), padding_after=after)
        return window if min(window.out(size)) >= 1 else replace(window, padding_after=None)
    if dice.random() < 0.2 and min(size) + 2 * edge >= 7:  # likewise
        return Window(kernel=(7, 7), stride=(2, 2), padding=(edge, edge))
    kernel, stride, dilation = (tuple(dice.randint(1, n) for _ in range(2)) for n in (largest, 3, 3))
    before, after = (tuple(dice.randint(0, k) for k in kernel) for _ in range(2))
    if dice.random() < 0.3:
        kernel, stride = (1, 1), dice.choice([(1, 1), stride])
    window = Window(kernel=kernel, stride=stride, padding=before, padding_after=after, dilation=dilation)
    return window if min(window.out(size)) >= 1 else Window(kernel=(1, 1), stride=stride)


def _square(case: Case, size: tuple[int, int]) -> Window:
    """A window that the depthwise kernel takes, more or less padded."""
    dice = case.dice
    kernel, stride = dice.choice([3, 3, 5, 7]), dice.choice([1, 2])
    edge, after = (dice.choice([0, kernel // 2, kernel // 2, kernel - 1]) for _ in range(2))
    window = Window(kernel=(kernel,) * 2, stride=(stride,) * 2, padding=(edge, after), padding_after=(after, edge))
    return window if min(window.out(size)) >= 1 else Window(kernel=(1, 1), stride=(stride,) * 2)


def conv(case: Case) -> None:
    dice = case.dice
    number, x, live = case.pick()
    channels = x.shape[1]
    if channels > 400:
        return
    out = dice.choice([1, 2, 3, 4, 6, 7, 12, 13, 26, 40])
    groups = dice.choice([g for g in (1, 1, 1, 2, channels) if channels % g == 0])
    out = (out + groups - 1) // groups * groups
    window = _window(case, (x.shape[2], x.shape[3]), dice.choice([7, 7, 7, 16]))
    if groups == channels and dice.random() < 0.6:
        window = _square(case, (x.shape[2], x.shape[3]))
    weight, bias = case.randn(out, channels // groups, *window.kernel), case.randn(out)
    weight /= np.float32(weight[0].size ** 0.5)
    gate, factor = (-1, torch.ones(len(x), out, dtype=torch.float64))
    if dice.random() < 0.6:
        gate, factor = _gate(case, number, x, out)
    options = {"stride": window.stride, "dilation": window.dilation, "groups": groups}
    around = (window.padding[1], window.after[1], window.padding[0], window.after[0])
    y = F.conv2d(F.pad(x, around), torch.from_numpy(weight).double(), torch.from_numpy(bias).double(), **options)
    follows = gate < 0 and channels == groups and dice.random() < 0.5
    alive = factor != 0
    if follows:
        alive = live.repeat_interleave(out // channels, 1)
        factor = alive.double()
    act, function = _act(case, out)
    scale_after = (gate >= 0 or follows) and dice.random() < 0.3
    residual = -1
    if scale_after:
        case.largest = max(case.largest, float(y.abs().max()))
        y = function(y) * factor[:, :, None, None]
    else:
        y = y * factor[:, :, None, None]
        others = [v for v in case.values if v[1].shape == y.shape]
        if others and dice.random() < 0.6:
            residual, other, other_live = dice.choice(others)
            y, alive = y + other, alive | other_live
        y, alive = _after(case, y, alive, function)
    options = {"residual": residual, "gate": gate, "follows": follows, "scale_after": scale_after}
    made = case.writer.conv(number, weight, bias, window, groups=groups, act=act, **options)
    case.keep(made, y, alive, f"conv({window}, groups {groups}, {act.kind}, {options})")


def pool(case: Case) -> None:
    number, x, live = case.pick()
    size = (x.shape[2], x.shape[3])
    most = case.dice.choice([4, 4, 20])
    kernel = tuple(case.dice.randint(1, min(most, n)) for n in size)
    window = Window(
        kernel=kernel,
        stride=tuple(case.dice.randint(1, 3) for _ in kernel),
        padding=tuple(case.dice.randint(0, k // 2) for k in kernel),
    )
    ceil = case.dice.random() < 0.3
    options = {"kernel_size": kernel, "stride": window.stride, "padding": window.padding, "ceil_mode": ceil}
    if case.dice.random() < 0.5:
        y = F.max_pool2d(x, **options)
        made = case.writer.pool(number, window, tuple(y.shape[2:]))
    else:
        include = case.dice.random() < 0.5
        y = F.avg_pool2d(x, **options, count_include_pad=include)
        ones = torch.ones(1, 1, *size, dtype=torch.float64)
        mean = F.avg_pool2d(ones, **options, count_include_pad=include)
        inverse = (mean / F.avg_pool2d(ones, **options, divisor_override=1))[0, 0].float().numpy()
        made = case.writer.pool(number, window, inverse.shape, inverse)
    case.keep(made, y, live, f"pool({window}, ceil {ceil})")


def adaptive(case: Case) -> None:
    number, x, live = case.pick()
    size = (1, 1) if case.dice.random() < 0.5 else tuple(case.dice.randint(1, n) for n in x.shape[2:])
    maximum = case.dice.random() < 0.3
    y = F.adaptive_max_pool2d(x, size) if maximum else F.adaptive_avg_pool2d(x, size)
    case.keep(case.writer.adaptive(number, size, maximum=maximum), y, live, f"adaptive({size}, {maximum})")
    if size == (1, 1) and case.dice.random() < 0.7:
        _linear(case)


def _linear(case: Case) -> None:
    number, x, _ = case.values[-1]
    out = case.dice.choice([1, 5, 31, 32, 33, 70])
    weight, bias = case.randn(out, x.shape[1]) / np.float32(x.shape[1] ** 0.5), case.randn(out)
    act, function = _act(case, out)
    y = F.linear(x[:, :, 0, 0], torch.from_numpy(weight).double(), torch.from_numpy(bias).double())[:, :, None, None]
    live = torch.ones(len(x), out, dtype=torch.bool)
    case.keep(case.writer.linear(number, weight, bias, act), function(y), live, f"linear({out}, {act.kind})")


def activation(case: Case) -> None:
    number, x, live = case.pick()
    act, function = _act(case, x.shape[1])
    case.keep(case.writer.activation(number, act), *_after(case, x, live, function), f"activation({act.kind})")


def add(case: Case) -> None:
    number, x, live = case.pick()
    same = [value for value in case.values if value[1].shape == x.shape]
    other, y, other_live = case.dice.choice(same)
    act, function = _act(case, x.shape[1])
    case.keep(
        case.writer.add(number, other, act), *_after(case, x + y, live | other_live, function), f"add({act.kind})"
    )


def multiply(case: Case) -> None:
    number, x, live = case.pick()
    same = [v for v in case.values if v[1].shape == x.shape or v[1].shape == (*x.shape[:2], 1, 1)]
    other, y, other_live = case.dice.choice(same)
    case.keep(case.writer.multiply(number, other), x * y, live & other_live, "multiply")


def affine(case: Case) -> None:
    number, x, live = case.pick()
    scale, shift = case.randn(x.shape[1]), case.randn(x.shape[1])
    fills = case.dice.random() < 0.6
    y = x * torch.from_numpy(scale).double()[:, None, None]
    if fills:
        y, live = y + torch.from_numpy(shift).double()[:, None, None], torch.ones_like(live)
    else:
        shift = np.zeros_like(shift)
    case.keep(case.writer.affine(number, scale, shift, fills=fills), y, live, f"affine({fills})")


def concat(case: Case) -> None:
    _, x, _ = case.pick()
    fitting = [value for value in case.values if value[1].shape[2:] == x.shape[2:]]
    parts = [case.dice.choice(fitting) for _ in range(case.dice.randint(1, 3))]
    made = case.writer.concat([part[0] for part in parts])
    case.keep(made, torch.cat([p[1] for p in parts], 1), torch.cat([p[2] for p in parts], 1), f"concat({len(parts)})")


def channels(case: Case) -> None:
    number, x, live = case.pick()
    source = [case.dice.randrange(x.shape[1]) for _ in range(case.dice.randint(1, 20))]
    case.keep(case.writer.channels(number, source), x[:, source], live[:, source], "channels")


def flatten(case: Case) -> None:
    number, x, live = case.pick()
    flat = live.repeat_interleave(x.shape[2] * x.shape[3], 1)
    case.keep(case.writer.flatten(number), x.flatten(1)[:, :, None, None], flat, "flatten")
    if case.dice.random() < 0.5:
        _linear(case)


STEPS = [conv] * 6 + [pool, adaptive, activation, add, multiply, affine, concat, channels, flatten, *OTHER_STEPS]
"""what a random program is made of, convolutions more often than the others"""
