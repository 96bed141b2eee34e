"""Random small networks in torch, gated and compiled, compared with themselves under random decisions.

They hold what programs cannot: modules that look like torch's own, in-place operators, slices that share memory.
"""

import random
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sanp
from sanp.core.errors import SlowWarning
from sanp.engine.agreement import disagreement

Run = Callable[[nn.ModuleList, Tensor], Tensor]
Made = tuple[list[nn.Module], Run]
"""the modules of a step, and what it does with them"""


class NormAct(nn.BatchNorm2d):
    """A batch norm with an activation inside."""

    def __init__(self, channels: int, act: nn.Module) -> None:
        super().__init__(channels)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.act(super().forward(x))
        return result


class Random(nn.Module):
    """Random steps over maps of eight channels; ``seed`` decides which, and what they do."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        dice = random.Random(seed)
        torch.manual_seed(seed)
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 3)
        self.parts = nn.ModuleList()
        self.runs: list[tuple[str, Run]] = []
        for _ in range(dice.randint(2, 5)):
            name = dice.choice(list(STEPS))
            made, run = STEPS[name](dice)
            self.parts.append(nn.ModuleList(made))
            self.runs.append((name, run))

    def forward(self, x: Tensor) -> Tensor:
        """All steps, and a linear layer on the means."""
        y = self.stem(x)
        for part, (_, run) in zip(self.parts, self.runs, strict=True):
            y = run(part, y)
        result: Tensor = self.head(y.mean((2, 3)))
        return result


def _norm(dice: random.Random) -> nn.Module:
    acts = (nn.ReLU(inplace=True), nn.SiLU(), nn.Hardswish(), nn.LeakyReLU(0.2), nn.Sigmoid(), nn.Identity())
    norm = NormAct(8, dice.choice(acts))
    with torch.no_grad():
        norm.weight.uniform_(-1.5, 1.5), norm.bias.uniform_(-1, 1)
        norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return norm


def _conv(dice: random.Random, inside: int = 8, outside: int = 8, groups: int = 1) -> nn.Module:
    kernel = dice.choice([1, 3, 3, 5])
    return nn.Conv2d(inside, outside, kernel, padding=kernel // 2, groups=groups, bias=dice.random() < 0.5)


def norm_with_activation(dice: random.Random) -> Made:
    return [nn.Sequential(_conv(dice), _norm(dice))], lambda m, x: m[0](x)


def partly_shared_concatenation(dice: random.Random) -> Made:
    def run(m: nn.ModuleList, x: Tensor) -> Tensor:
        a, b = m[0](x), m[1](x)
        return m[3](torch.cat([m[2](torch.cat([a, b, x], 1)), m[2](torch.cat([a, x, x], 1)), a], 1))

    return [_conv(dice), _conv(dice), _conv(dice, 24), _conv(dice, 24)], run


def addition_to_a_slice(dice: random.Random) -> Made:
    def run(m: nn.ModuleList, x: Tensor) -> Tensor:
        y = m[0](x)
        return torch.cat([y[:, :3], y[:, 3:6] + m[1](x), y[:, 6:]], 1)

    return [_conv(dice), _conv(dice, 8, 3)], run


def addition_in_a_slice(dice: random.Random) -> Made:
    def run(m: nn.ModuleList, x: Tensor) -> Tensor:
        y = m[0](x)
        y[:, 2:5] += m[1](x)
        return F.relu(y)

    return [_conv(dice), _conv(dice, 8, 3)], run


def depthwise_on_a_slice(dice: random.Random) -> Made:
    def run(m: nn.ModuleList, x: Tensor) -> Tensor:
        y = m[0](x)
        return torch.cat([m[1](y[:, 2:6]), y[:, :4]], 1)

    return [_conv(dice), nn.Conv2d(4, 4, 3, padding=1, groups=4)], run


def in_place(dice: random.Random) -> Made:
    def run(m: nn.ModuleList, x: Tensor) -> Tensor:
        y = m[0](x)
        y.add_(x).relu_()
        return y.mul_(0.5) + m[1](y)

    return [_conv(dice), nn.Sequential(_conv(dice), _norm(dice))], run


def split_used_twice(dice: random.Random) -> Made:
    def run(m: nn.ModuleList, x: Tensor) -> Tensor:
        a, b = m[0](x).chunk(2, 1)
        return torch.cat([m[1](b) + a, m[2](b)], 1)

    return [_conv(dice), _conv(dice, 4, 4), nn.Conv2d(4, 4, 3, padding=1, groups=4)], run


def shuffled(dice: random.Random) -> Made:
    def run(m: nn.ModuleList, x: Tensor) -> Tensor:
        y = m[0](x)
        return y.unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)

    return [nn.Sequential(_conv(dice, groups=2), _norm(dice))], run


def weighed(dice: random.Random) -> Made:
    def run(m: nn.ModuleList, x: Tensor) -> Tensor:
        y = m[0](x)
        return y * torch.sigmoid(m[2](F.relu(m[1](y.mean((2, 3), keepdim=True)))))

    return [_conv(dice), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)], run


STEPS: dict[str, Callable[[random.Random], Made]] = {
    step.__name__: step
    for step in (
        norm_with_activation, partly_shared_concatenation, addition_to_a_slice, addition_in_a_slice,
        depthwise_on_a_slice, in_place, split_used_twice, shuffled, weighed,
    )
}  # fmt: skip


def wrong_network(seed: int) -> str | None:
    """What is wrong with the compiled network of this seed; None if all agrees."""
    dice = random.Random(seed)
    net = Random(seed).eval()
    x = torch.randn(3, 3, dice.randint(5, 14), dice.randint(5, 14))
    gated = sanp.gate(net, x[:1]).eval()
    density = dice.choice([0.0, 0.3, 0.6, 1.0])
    for layer in gated.layers.values():  # some channels of every layer, others for every image
        with torch.no_grad():
            for parameter in layer.spm.parameters():
                parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3)
            layer.spm.threshold.fill_(1.0 + (0.5 - density))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)
        fast = sanp.compile(gated, x[:1], tune=False)
    told = None if fast.plan.instruction_set == "none" else disagreement(fast, gated, x)
    steps = ", ".join(name for name, _ in net.runs)
    story = f"network {seed} ({steps}, {density:.0%}): "
    refused = [why for why in (fast.plan.reasons(), told) if why and "differ" in why]
    return story + refused[0] if refused else None
