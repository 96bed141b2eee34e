"""Universally slimmable networks (Yu and Huang, 2019): one network of any width, the same share of channels everywhere.

The channels of each layer are ranked once, by Σ|w| of their kernels; a network of width d has the first ⌈d C⌉ of each
layer and shares its weights with all others. A step trains the largest width, the smallest and two random ones
together (the sandwich rule): the largest with the task's loss, the others to answer as the largest does. Afterwards
batch norm statistics are estimated for five widths; those of a width between two of them are interpolated.

With a range of budgets the widths go from one end to the other; with a single one, from its width to the whole network.
What is different from the paper: widths are set by their FLOPs; a ranking by Σ|w| takes the place of the order in which
channels stand, since the network comes trained; where features are added, each branch has its own order.
"""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.core.checks import check_fields
from sanp.core.distributed import same_everywhere
from sanp.core.errors import SanpError
from sanp.gating.amount import parse_budget
from sanp.gating.budget_range import parse_range
from sanp.gating.dial import POINTS, Dial, set_level
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.gating.trained_budgets import TrainedBudgets
from sanp.methods.parts.density import kept_at_density, set_density, winners
from sanp.methods.parts.gating_method import GatingMethod
from sanp.methods.parts.ranked_width import KEPT_WIDTHS, RankedSaliency, Width
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.spm.module import SPM, SPMConfig
from sanp.training.finish import estimate_norms, to_last_epoch
from sanp.training.optimizers import schedule, scheduled, sgd
from sanp.training.precision import Format, lay_out
from sanp.training.stage import Outcome, Stage, steps_in
from sanp.training.task import Task, share_right


@dataclass(frozen=True, kw_only=True)
class SlimmableConfig:
    """Settings of slimmable networks."""

    between: int = 2
    """random widths that a step trains beside the largest and the smallest"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.between < 0:
            raise SanpError(f"between {self.between} must not be negative: it is a number of widths")


def slimmable_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
    """An SPM that opens the first channels of a ranking; the settings in ``config`` are not used."""
    return SPM(RankedSaliency(in_channels, out_channels), Width(out_channels), scales=False)


@dataclass(frozen=True, kw_only=True)
class Slimmable(GatingMethod):
    """Universally slimmable networks as a pruning method."""

    name: str = "slimmable"
    layer_adaptive: bool = False
    sample_adaptive: bool = False
    config: SlimmableConfig = field(default_factory=SlimmableConfig)

    def spm_maker(self) -> MakeSPM:
        """SPMs that open the first channels; all of them at first."""
        return slimmable_spm

    def prepare(self, gated: GatedNetwork) -> None:
        """Ranks the channels, and gives each layer's binarizer the batch norms whose statistics it has to keep."""
        layers = gated.layers.values()
        left = [each for each in gated.net.modules() if isinstance(each, _BatchNorm) and each.track_running_stats]
        for layer in layers:
            if isinstance(layer.spm.saliency, RankedSaliency):
                kernels: Tensor = layer.conv.weight  # type: ignore[assignment]
                transposed = isinstance(layer.conv, nn.modules.conv._ConvTransposeNd)
                by_channel = kernels.detach().transpose(0, 1) if transposed else kernels.detach()
                if len(by_channel) == len(layer.spm.saliency.rank):
                    layer.spm.saliency.set_order(by_channel.flatten(1).abs().sum(1))
        for layer in reversed(list(layers)):
            own = [layer.norm] if isinstance(layer.norm, _BatchNorm) and layer.norm in left else []
            first = layer is next(iter(layers))
            left = [norm for norm in left if norm not in own]
            if isinstance(layer.spm.binarize, Width):
                layer.spm.binarize.hold([*own, *left] if first else own)

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """Trains all widths together; then keeps batch norm statistics of some, and sets the smallest."""
        wanted = parse_range(task.budget)
        ends = (gated.kept_for(task.budget), 1.0) if wanted is None else wanted.kept(gated.cost, gated.latency)
        low, high = width_of(gated, ends[0]), width_of(gated, ends[1], above=True)
        gated.budget = parse_budget(task.budget) if wanted is None else wanted.low
        gated.trained, gated.dial = TrainedBudgets(*ends), None
        yield sandwich_stage(gated, task, low, high, self.config.between)
        keep_norms(gated, task, low, high)
        gated.dial = dial_of(gated, low, high)
        set_level(gated, 1 - (low if wanted is not None else nearest_width(gated, ends[0])))
        same_everywhere(gated)


def width_of(gated: GatedNetwork, kept: float, *, above: bool = False) -> float:
    """The largest width that computes at most the share ``kept`` of the dense FLOPs; or ``above``, the smallest that
    computes at least that."""
    order = ranks(gated)
    widths = sorted(
        {count / each.channels for each in winners(gated).values() for count in range(1, each.channels + 1)}
    )

    def kept_at(width: float) -> float:
        return kept_at_density(gated, order, width)

    if above:
        return widths[min(bisect_left(widths, kept, key=kept_at), len(widths) - 1)]
    return widths[max(bisect_right(widths, kept, key=kept_at) - 1, 0)]


def nearest_width(gated: GatedNetwork, kept: float) -> float:
    """The width whose cost is nearest to the share ``kept`` of the dense FLOPs."""
    both = (width_of(gated, kept), width_of(gated, kept, above=True))
    return min(both, key=lambda width: abs(kept_at_density(gated, ranks(gated), width) - kept))


def ranks(gated: GatedNetwork) -> dict[str, Tensor]:
    """The ranking of each layer's channels (1, C_out), by the names of the layers' calls."""
    found = {}
    for name, layer in gated.cost.gates.items():
        saliency = gated.layers[layer.path].spm.saliency
        assert isinstance(saliency, RankedSaliency)
        found[name] = saliency.rank[None]
    return found


def drawn_widths(low: float, high: float, between: int, step: int) -> list[float]:
    """The widths of a step: the largest, the smallest and random ones; always the same for a step."""
    draw = random.Random(step)
    return [high, low, *(draw.uniform(low, high) for _ in range(between))]


def sandwich_stage(gated: GatedNetwork, task: Task, low: float, high: float, between: int) -> Stage:
    """The stage that trains the widths from ``low`` to ``high``."""
    epochs = epochs_in_parts(task, 1)[0]
    steps = max(1, epochs * steps_in(task.loader))
    if task.teacher is not None:
        lay_out(task.teacher)

    def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
        widths = drawn_widths(low, high, between, round(progress * steps))
        set_density(gated, widths[0])
        output = gated(x)
        loss = task.loss_with_teacher(x, output, y)
        wanted = torch.utils._pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, output)
        total = loss
        for width in widths[1:]:
            set_density(gated, width)
            total = total + task.loss_to(wanted, gated(x), y)
        kept = kept_at_density(gated, ranks(gated), low)
        return Outcome(total, share_right(output, y), kept, kept, 0.0, shown=loss.item())

    optimizers = [scheduled(sgd(gated.backbone_parameters(), task.config.lr, task.config), schedule(task.config))]
    return Stage("joint", gated, task.loader, epochs, step_loss, optimizers, Format(gated, task.config.precision))


def keep_norms(gated: GatedNetwork, task: Task, low: float, high: float) -> None:
    """Estimates the batch norm statistics of widths between both ends, and keeps them."""
    to_last_epoch(task)
    format = Format(gated, task.config.precision)
    for knot, width in enumerate(torch.linspace(low, high, KEPT_WIDTHS).tolist()):
        set_density(gated, width)
        with format.autocast():
            estimate_norms(gated, task.loader, task.config.norm_batches, format)
        for layer in gated.layers.values():
            if isinstance(layer.spm.binarize, Width):
                layer.spm.binarize.keep(knot, width)


def dial_of(gated: GatedNetwork, low: float, high: float) -> Dial | None:
    """The cost of widths from ``low`` to ``high``, which follows from the ranking alone; None if it is one cost."""
    found: list[tuple[float, float]] = []
    for width in torch.linspace(low, high, POINTS, dtype=torch.float64).tolist():
        kept = kept_at_density(gated, ranks(gated), width)
        if not found or kept > found[-1][0]:
            found.append((kept, 1 - width))
    shares, levels = zip(*found, strict=True)
    return Dial(shares, levels) if len(found) > 1 else None
