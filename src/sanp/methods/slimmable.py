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
from sanp.gating.dial import POINTS, Dial, set_thresholds
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.gating.trained_budgets import TrainedBudgets
from sanp.methods.parts.density import kept_at_density, set_density, winners
from sanp.methods.parts.gating_method import GatingMethod
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.spm.module import SPM, SPMConfig
from sanp.spm.saliency import FoldedSaliency, Saliency
from sanp.spm.top_k import TopK
from sanp.training.distillation import default_distill_loss
from sanp.training.finish import estimate_norms, to_last_epoch
from sanp.training.optimizers import schedule, scheduled, sgd
from sanp.training.precision import Format, lay_out
from sanp.training.stage import Outcome, Stage, steps_in
from sanp.training.task import Task, share_right

KEPT_WIDTHS = 5
"""widths whose batch norm statistics are kept"""


@dataclass(frozen=True, kw_only=True)
class SlimmableConfig:
    """Settings of slimmable networks."""

    between: int = 2
    """random widths that a step trains beside the largest and the smallest"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.between < 0:
            raise SanpError(f"between {self.between} must not be negative: it is a number of widths")


class RankedSaliency(Saliency):
    """The place of each channel in the ranking, as a number that falls from 1; the same for every image."""

    rank: Tensor

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.register_buffer("rank", torch.linspace(1, 1 / out_channels, out_channels))

    @property
    def flops(self) -> int:
        """0: nothing is computed."""
        return 0

    def set_order(self, values: Tensor) -> None:
        """Ranks the channels by ``values`` (C_out,): the largest is first, of equal ones that which stands first."""
        order = values.sort(stable=True, descending=True).indices
        self.rank[order] = torch.linspace(1, 1 / len(order), len(order)).to(self.rank)

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, C_out)
        """The same numbers for each of the N images."""
        return self.rank.expand(len(x), -1)

    def folded(self) -> FoldedSaliency:
        """The numbers as the bias of the second layer; the input is not used."""
        nothing = self.rank.new_zeros(0, self.in_channels)
        return FoldedSaliency(nothing, nothing[:, 0], self.rank.new_zeros(len(self.rank), 0), self.rank)


class Width(TopK):
    """Opens the first channels of the ranking, and gives batch norms the statistics of the width when it is set.

    The level is the share of closed channels. ``hold`` says which batch norms.
    """

    widths: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__(channels, round_up=True)
        self.norms: tuple[_BatchNorm, ...] = ()
        self.register_buffer("widths", torch.zeros(KEPT_WIDTHS))

    def hold(self, norms: list[_BatchNorm]) -> None:
        """Makes room for the statistics of these batch norms."""
        self.norms = tuple(norms)  # in a tuple, so that they do not become submodules
        for number, norm in enumerate(self.norms):
            self.register_buffer(f"mean_{number}", torch.zeros(KEPT_WIDTHS, norm.num_features))
            self.register_buffer(f"var_{number}", torch.ones(KEPT_WIDTHS, norm.num_features))

    def keep(self, knot: int, width: float) -> None:
        """Keeps the present statistics as those of ``width``; widths ascend with ``knot``."""
        self.widths[knot] = width
        for number, norm in enumerate(self.norms):
            getattr(self, f"mean_{number}")[knot] = norm.running_mean
            getattr(self, f"var_{number}")[knot] = norm.running_var

    def set_level(self, threshold: Tensor, level: float) -> None:
        """Sets the width to 1 - level, and the statistics of the batch norms."""
        super().set_level(threshold, level)
        if not bool(self.widths[-1] > 0):  # none are kept yet
            return
        place = min(max(1 - level, float(self.widths[0])), float(self.widths[-1]))
        above = min(KEPT_WIDTHS - 1, max(1, int(torch.searchsorted(self.widths, place))))
        low, high = float(self.widths[above - 1]), float(self.widths[above])
        part = 1.0 if high <= low else (place - low) / (high - low)
        for number, norm in enumerate(self.norms):
            for name, kept in (("mean", norm.running_mean), ("var", norm.running_var)):
                table = getattr(self, f"{name}_{number}")
                kept.copy_(torch.lerp(table[above - 1], table[above], part))  # type: ignore[union-attr]


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
        set_thresholds(gated, 1 - (low if wanted is not None else nearest_width(gated, ends[0])))
        same_everywhere(gated)


def width_of(gated: GatedNetwork, kept: float, *, above: bool = False) -> float:
    """The largest width that computes at most the share ``kept`` of the dense FLOPs; or ``above``, the smallest that
    computes at least that."""
    order = ranks(gated)
    widths = sorted(
        {count / each.channels for each in winners(gated).values() for count in range(1, each.channels + 1)}
    )

    def cost(width: float) -> float:
        return kept_at_density(gated, order, width)

    if above:
        return widths[min(bisect_left(widths, kept, key=cost), len(widths) - 1)]
    return widths[max(bisect_right(widths, kept, key=cost) - 1, 0)]


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
            total = total + taught(task, gated(x), wanted, y)
        kept = kept_at_density(gated, ranks(gated), low)
        return Outcome(total, share_right(output, y), kept, kept, 0.0, shown=loss.item())

    optimizers = [scheduled(sgd(gated.backbone_parameters(), task.config.lr, task.config), schedule(task.config))]
    return Stage("joint", gated, task.loader, epochs, step_loss, optimizers, Format(gated, task.config.precision))


def taught(task: Task, output: Any, wanted: Any, target: Any) -> Tensor:
    """The loss of a smaller width: how far its ``output`` is from that of the largest, ``wanted``."""
    if task.distill_loss is not None:
        return task.distill_loss(output, wanted)
    return default_distill_loss(output, wanted, target, task.config.temperature, own_loss=task.loss is not None)


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
