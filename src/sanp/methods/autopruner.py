"""AutoPruner (Luo and Wu, 2018): a code layer after each convolution learns which channels to keep, for all images.

The code layer is a linear layer with bias. Its input is the batch mean of the convolution's activation after a 2x2 max
pooling; its output v has one value for each channel. Its weights start from N(0, 10 sqrt(2 / n)) for n inputs. The
channels are scaled by σ(α v), where α grows from 1 to 100. The loss is cross entropy + reg (mean scale - target)², with
reg = 100 |share of scales above 0.5 - target|. Layers learn one after the other; where there are fewer epochs than
layers, several neighbouring ones together. When a layer has learned, its channels with σ(α v) < 0.5 are closed, and the
target of the layers after it is what the budget leaves for them. At last the closed channels are cut out and the rest
is fine-tuned.

What is different from the paper: the first target is the rate, the same in all layers, whose FLOPs meet the budget; the
cut moves from 0.5 in the last layer, and where the budget would be out of reach otherwise. reg is measured in every
step, not every 20. There is no gradient from v to the features, evaluation and the cut use a running mean of v, and v
is divided by n, with weights n times as large, so that one learning rate serves all layers. Channels that an addition
joins with others are not removed. α grows with the steps alone, and the activation is taken to be ReLU.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.methods.cutting.cutting import Cutting, check_emptying
from sanp.methods.cutting.ranking import below, least_of_each_layer, removable_groups
from sanp.methods.parts.code_layer import CodedNetwork
from sanp.methods.parts.retrain import epochs_in_parts, plain_stage
from sanp.training.optimizers import flat, scheduled
from sanp.training.stage import Stage, Stages
from sanp.training.task import Task
from sanp.training.term import Forward


@dataclass(frozen=True, kw_only=True)
class AutoPrunerConfig:
    """Settings of AutoPruner."""

    steepest: float = 100.0
    """steepness α of the sigmoid at the end of training the code layers; it starts at 1"""
    strength: float = 100.0
    """factor of reg: reg is this times the distance of the share of open channels from the target"""
    start: float = 10.0
    """the weights of a code layer with n inputs start with the deviation start · sqrt(2 / n)"""
    blocks: int | None = None
    """how many blocks of layers learn one after the other; none: one for each layer, or epoch if these are fewer"""
    code_share: float = 0.5
    """share of the epochs that train the code layers; the others fine-tune"""
    lr: float = 0.02
    """learning rate of the code layers (AdamW); it is about how far v can move in one step"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.steepest < 1:
            raise SanpError(f"steepest {self.steepest} must be at least 1, where α starts")
        if self.start < 0 or (self.blocks is not None and self.blocks < 1):
            raise SanpError(f"start {self.start} must not be negative and blocks {self.blocks} must be at least 1")
        if not 0 < self.code_share < 1:
            raise SanpError(f"code_share {self.code_share} must be between 0 and 1: it is a share of the epochs")


def rate_penalty(scales: Iterable[Tensor], target: float, strength: float) -> Tensor:
    """Σ over the layers of reg (mean scale - target)², with reg = strength |share of scales above 0.5 - target|.

    ``scales`` holds the scales of each layer, ``target`` the mean that they should have.
    """
    terms = []
    for scale in scales:
        reg = strength * ((scale.detach() > 0.5).to(scale.dtype).mean() - target).abs()
        terms.append(reg * (scale.mean() - target).square())
    return torch.stack(terms).sum()


def in_blocks(paths: Sequence[str], epochs: int, blocks: int | None) -> list[tuple[list[str], int]]:
    """Divides layers and epochs into blocks of neighbours: the layers of each block, and its epochs.

    None for ``blocks``: one for each layer, or for each epoch if these are fewer.
    """
    count = max(1, min(len(paths), epochs if blocks is None else blocks))
    ends = [[round(size * (number + 1) / count) for number in range(count)] for size in (len(paths), epochs)]
    starts = [[0, *each[:-1]] for each in ends]
    return [(list(paths[starts[0][i] : ends[0][i]]), ends[1][i] - starts[1][i]) for i in range(count)]


@dataclass(frozen=True, kw_only=True)
class AutoPruner:
    """AutoPruner as a pruning method."""

    name: str = "autopruner"
    layer_adaptive: bool = True
    sample_adaptive: bool = False
    simplified: str = ""
    config: AutoPrunerConfig = field(default_factory=AutoPrunerConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one channel in each layer already exceeds the budget."""
        check_emptying(net, task, self.name, added=False)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Trains with code layers, cuts the network, fine-tunes it."""
        cutting = Cutting(net, task, self.name)
        if cutting.example.dim() != 4:
            shape = tuple(cutting.example.shape)
            raise SanpError(f"autopruner takes images, and the example is {shape}: choose l1 or ns")
        layers = removable_groups(cutting.channel_groups, added=False)
        sites = {path: cutting.channel_groups.norm_of.get(path, path) for path in layers}
        coded = CodedNetwork(cutting.net, sites, cutting.example, self.config.start)
        learn, fine = epochs_in_parts(task, self.config.code_share, 1 - self.config.code_share)
        removed: set[int] = set()
        rest = dict(layers)
        for paths, epochs in in_blocks(list(layers), learn, self.config.blocks):
            rate = rate_of(cutting, removed, rest)
            coded.only_learn(paths)
            if epochs:
                yield self._code_stage(coded, paths, cutting.task, epochs, 1 - rate)
            block = {path: rest.pop(path) for path in paths}
            removed = closed_in(cutting, removed, code_scores(cutting, coded, block), rest, rate)
            for path in paths:
                outputs = cutting.channel_groups.members[path].outputs
                coded.layers[path].opened.copy_(cutting.channel_groups.kept(outputs, removed))
        coded.remove_codes()
        finished = yield from cutting.fine_tune(cutting.without(removed), fine)
        return finished

    def _code_stage(self, coded: CodedNetwork, paths: list[str], task: Task, epochs: int, target: float) -> Stage:
        def steepen(progress: float) -> None:
            for path in paths:
                coded.layers[path].steepness.fill_(1 + (self.config.steepest - 1) * progress)

        def penalty(forward: Forward) -> Tensor:
            return rate_penalty((gate.saliency for gate in forward.gates.values()), target, self.config.strength)

        adam = torch.optim.AdamW(coded.code_parameters(paths), lr=self.config.lr, weight_decay=0.0)
        return plain_stage(
            "code" if len(paths) == len(coded.layers) else f"code {paths[0]}",
            coded,
            task,
            epochs,
            penalty=penalty,
            before_step=steepen,
            only=coded.network_parameters(),
            also_train=(scheduled(adam, flat(task.config.rise)),),
        )


HIGHEST_RATE = 0.9
"""the highest rate that a decision may leave for the layers after it"""


def at_rate(cutting: Cutting, removed: set[int], layers: Mapping[str, Tensor], rate: float) -> set[int]:
    """The groups ``removed``, and the share ``rate`` of these layers, given by path; which ones does not matter."""
    equal = {int(group): 0.0 for groups in layers.values() for group in groups}
    return removed | least_of_each_layer(cutting.channel_groups, layers, equal, rate)


def rate_of(cutting: Cutting, removed: set[int], rest: Mapping[str, Tensor]) -> float:
    """The rate, the same in all layers of ``rest``, that meets the budget if ``removed`` is removed already."""
    return cutting.level(lambda rate: at_rate(cutting, removed, rest, rate), 0.0, 1.0)


def closed_in(
    cutting: Cutting, removed: set[int], scores: dict[int, float], rest: Mapping[str, Tensor], rate: float
) -> set[int]:
    """The groups that are removed after a block of layers has learned, those of ``removed`` included.

    ``scores`` are the v of the block's groups; those up to 0 are removed. If the budget could then not be met with a
    rate from 0 to ``HIGHEST_RATE`` in the layers after it, ``rest``, the threshold is moved so that it is met with
    ``rate`` there.
    """
    groups = cutting.channel_groups
    own = removed | below(groups, scores, 0.0)
    lowest = cutting.kept_without(at_rate(cutting, own, rest, HIGHEST_RATE))
    if rest and lowest <= cutting.kept <= cutting.kept_without(own):
        return own
    order = {group: float(rank) for rank, group in enumerate(sorted(scores, key=lambda group: scores[group]))}

    def removed_at(threshold: float) -> set[int]:
        return at_rate(cutting, removed | below(groups, order, threshold), rest, rate)

    threshold = cutting.level(removed_at, -1.0, max(order.values()))
    return removed | below(groups, order, threshold)


def code_scores(cutting: Cutting, coded: CodedNetwork, layers: Mapping[str, Tensor]) -> dict[int, float]:
    """The running mean of v of each removable channel group; it is negative where σ(α v) < 0.5.

    ``layers`` holds the removable groups of each convolution, by path.
    """
    scores = {}
    for path, groups in layers.items():
        channels = cutting.channel_groups.groups_of(cutting.channel_groups.members[path].outputs).tolist()
        of = dict(zip(channels, coded.layers[path].mean_v.tolist(), strict=True))
        scores.update({int(group): of[int(group)] for group in groups})
    return scores
