"""Random forms of the operators that few networks have, each beside the same in torch's double precision."""

import numpy as np
import torch
import torch.nn.functional as F

from sanp.engine.lowering.activation import Activation
from sanp.engine.lowering.arranging import arranged, numbered
from sanp.engine.lowering.shapes import Between, Window
from tests.tools.engine_case import Case

_FEW = 3000
"""elements of a value that is taken apart"""


def gather(case: Case) -> None:
    """Crops, mirrored edges, turned and shuffled elements, zeros in between."""
    dice = case.dice
    number, x, live = case.pick()
    if x[0].numel() > _FEW:
        return
    index = numbered(x.shape[1:]) + 1  # 0 stands for a zero
    how = dice.choice(["crop", "turn", "mirror", "zeros", "order", "some"])
    if how == "crop":
        index = index[:, dice.randrange(x.shape[2]) :, : dice.randint(1, x.shape[3])]
    elif how == "turn":
        index = index.permute(dice.sample(range(3), 3))
    elif how == "mirror":
        index = index.flip(dice.choice([0, 1, 2])).repeat_interleave(2, 2)
    elif how == "zeros":
        index = F.pad(index, [dice.randint(0, 2) for _ in range(4)])
    elif how == "order":
        index = index.flatten()[torch.randperm(index.numel(), generator=torch.Generator().manual_seed(case.seed))]
        index = index.reshape(x.shape[1:])
    else:
        count = dice.randint(1, 40)
        index = torch.tensor([dice.randint(0, index.numel()) for _ in range(2 * count)]).reshape(2, 1, count)
    taken = F.pad(x.flatten(1), (1, 0))[:, index]
    reached = F.pad(live.repeat_interleave(x.shape[2] * x.shape[3], 1), (1, 0))[:, index].flatten(2).any(2)
    made = arranged(case.writer, number, index - 1, (index.shape[0], index.shape[1], index.shape[2]))
    case.keep(made, taken, reached, f"gather({how})")


def instance_norm(case: Case) -> None:
    """Over pixels, with a scale and a shift; large variances only, for rounding is divided by their root."""
    number, x, live = case.pick()
    scale, shift = case.randn(x.shape[1]), case.randn(x.shape[1])
    eps = case.dice.choice([0.1, 1.0])
    y = F.instance_norm(x, eps=eps) if x.shape[2] * x.shape[3] > 1 else torch.zeros_like(x)
    y = y * torch.from_numpy(scale).double()[:, None, None] + torch.from_numpy(shift).double()[:, None, None]
    made = case.writer.instance_norm(number, scale, shift, eps)
    case.keep(made, y, torch.ones_like(live), f"instance_norm({eps})")


def softmax(case: Case) -> None:
    number, x, live = case.pick()
    logarithm = case.dice.random() < 0.5
    wanted = x.log_softmax(2) if logarithm else x.softmax(2)
    case.keep(case.writer.softmax(number, logarithm=logarithm), wanted, torch.ones_like(live), f"softmax({logarithm})")


def resize(case: Case) -> None:
    number, x, live = case.pick()
    if x[0].numel() > _FEW:
        return

    def between(size: int) -> tuple[Between, torch.Tensor]:
        count = case.dice.randint(1, 12)
        first = [case.dice.randrange(size) for _ in range(count)]
        second = [min(each + 1, size - 1) for each in first]
        weight = case.noise.random(count).astype(np.float32)
        matrix = torch.zeros(count, size, dtype=torch.float64)
        for row, (a, b, w) in enumerate(zip(first, second, weight.tolist(), strict=True)):
            matrix[row, a] += 1 - w
            matrix[row, b] += w
        return Between(first=tuple(first), second=tuple(second), weight=weight), matrix

    (rows, left), (columns, right) = between(x.shape[2]), between(x.shape[3])
    case.keep(case.writer.resize(number, rows, columns), left @ x @ right.T, live, "resize")


def unpool(case: Case) -> None:
    """Numbers put back to where another value of the size before has its maxima."""
    number, x, live = case.pick()
    kernel, stride = case.dice.choice([(2, 2), (3, 2), (2, 3)])
    if min(x.shape[2:]) < kernel:
        return
    window = Window(kernel=(kernel, kernel), stride=(stride, stride), padding=(kernel // 2,) * 2)
    rounded = x.float().double()  # rounding must not decide which number is the largest
    if float((rounded - x).abs().max()) != 0 or len(case.values) > 1:
        return
    y, places = F.max_pool2d(rounded, kernel, stride, kernel // 2, return_indices=True)
    small = case.writer.pool(number, window, (y.shape[2], y.shape[3]))
    made = case.writer.unpool(small, number, window)
    back = torch.zeros_like(x).flatten(2).scatter(2, places.flatten(2), y.flatten(2)).reshape(x.shape)
    case.keep(made, back, live, f"unpool({window})")


def power(case: Case) -> None:
    number, x, live = case.pick()
    exponent = case.dice.choice([0.5, 1.5, 0.75])
    above = case.writer.activation(number, Activation("sigmoid"))
    y = torch.sigmoid(x)
    case.keep(above, y, torch.ones_like(live), "sigmoid")
    case.keep(case.writer.power(above, exponent), y**exponent, torch.ones_like(live), f"power({exponent})")


OTHER_STEPS = [gather, instance_norm, softmax, resize, unpool, power]
"""as STEPS of engine_steps.py"""
