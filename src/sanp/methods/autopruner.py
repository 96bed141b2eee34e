"""AutoPruner (Luo and Wu, 2018): a code layer after each convolution learns which channels to keep, for all images.

The code layer is a linear layer. Its input is the batch mean of the convolution's activation after a 2x2 max pooling;
its output v has one value for each channel. The channels are scaled by σ(α v), where α grows from 1 to 100. The loss is
cross entropy + Σ reg (mean scale - target)², with reg = 100 |mean scale - target|. Then the channels of smallest v are
cut out and the rest is fine-tuned.

The target is the rate, the same in all layers, whose FLOPs meet the budget. The paper cuts where σ(α v) < 0.5; here the
threshold is moved so that the FLOPs meet the budget. Channels that an addition joins with others are not removed.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.core.modules import device_of
from sanp.methods.cutting.cutting import Cutting
from sanp.methods.cutting.ranking import below, least_of_each_layer, ranked, removable_groups
from sanp.methods.parts.retrain import epochs_in_parts, plain_stage
from sanp.spm.recording import Gates, forward_of, note
from sanp.tracing.tracer import trace_forward
from sanp.training.optimizers import flat, tuned
from sanp.training.stage import Stage, Stages
from sanp.training.task import Task
from sanp.training.term import Forward


@dataclass(frozen=True, kw_only=True)
class AutoPrunerConfig:
    """Settings of AutoPruner."""

    steepest: float = 100.0
    """steepness α of the sigmoid at the end of training the code layers; it starts at 1"""
    strength: float = 100.0
    """factor of reg: reg is this times the distance of the mean scale from the target"""
    code_share: float = 0.5
    """share of the epochs that train the code layers; the others fine-tune"""
    lr: float = 0.02
    """learning rate of the code layers (AdamW); it is about how far v can move in one step"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.steepest < 1:
            raise SanpError(f"steepest {self.steepest} must be at least 1, where α starts")
        if not 0 < self.code_share < 1:
            raise SanpError(f"code_share {self.code_share} must be between 0 and 1: it is a share of the epochs")


class CodeLayer(nn.Module):
    """A layer and its code layer, which scales each channel by a value predicted from the layer's activation.

    ``name`` is the name of the convolution. ``layer`` is the module whose output is scaled; its output has the given
    ``channels``, ``height`` and ``width``.
    """

    mean_v: Tensor
    steepness: Tensor

    def __init__(self, name: str, layer: nn.Module, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.name, self.layer = name, layer
        self.pool = 2 if min(height, width) >= 2 else 1
        self.size = channels * (height // self.pool) * (width // self.pool)
        self.code = nn.Linear(self.size, channels, bias=False)
        nn.init.normal_(self.code.weight, std=math.sqrt(2 * self.size))
        self.register_buffer("mean_v", torch.zeros(channels))
        self.register_buffer("steepness", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:  # -> (N, C, H, W)
        """The output of the layer times σ(α v); evaluation uses the running mean of v."""
        y: Tensor = self.layer(x)
        v = self.mean_v
        if self.training:
            mean = F.max_pool2d(F.relu(y.detach()).mean(0, keepdim=True), self.pool)  # (1, C, H / 2, W / 2)
            with torch.autocast(x.device.type, enabled=False):  # decisions must not depend on rounding
                v = self.code(mean.flatten(1).float())[0] / self.size  # (C,); so a step moves v alike in all layers
            with torch.no_grad():
                self.mean_v.lerp_(v, 0.1)
        scale = torch.sigmoid(self.steepness * v)
        note(self.name, Gates(scale[None], (scale.detach() > 0.5).float()[None], scale[None]))
        return y * scale.to(y.dtype)[:, None, None]


class CodedNetwork(nn.Module):
    """A network with code layers, for training.

    ``sites`` maps the path of a convolution to that of the module whose output is scaled: its batch norm, or the
    convolution itself. ``net`` is changed in place. ``example`` is an input for it.
    """

    def __init__(self, net: nn.Module, sites: Mapping[str, str], example: Tensor) -> None:
        super().__init__()
        self.net = net
        shapes = _output_shapes(net, list(sites.values()), example)
        self.layers = {
            path: CodeLayer(path, net.get_submodule(site), *shapes[site][1:]) for path, site in sites.items()
        }
        self._sites = dict(sites)
        for path, site in sites.items():
            _put(net, site, self.layers[path].to(device_of(net)))

    def forward(self, x: Tensor) -> Any:
        """The forward of the network with scaled channels; the scales are recorded as gates."""
        with forward_of(self):
            return self.net(x)

    def code_parameters(self) -> list[nn.Parameter]:
        """The parameters of the code layers."""
        return [parameter for layer in self.layers.values() for parameter in layer.code.parameters()]

    def network_parameters(self) -> list[nn.Parameter]:
        """All parameters except those of the code layers."""
        codes = {id(parameter) for parameter in self.code_parameters()}
        return [parameter for parameter in self.net.parameters() if id(parameter) not in codes]

    def remove_codes(self) -> None:
        """Takes the code layers out of the network again."""
        for path, site in self._sites.items():
            _put(self.net, site, self.layers[path].layer)


def _output_shapes(net: nn.Module, paths: list[str], example: Tensor) -> dict[str, torch.Size]:
    """The output shape of each of these modules."""
    trace = trace_forward(net, example)
    calls = {call.path: call for call in trace.calls}
    return {path: trace.shapes[calls[path].outputs[0].index] for path in paths}


def _put(net: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(net.get_submodule(parent), name, module)


def rate_penalty(scales: Iterable[Tensor], target: float, strength: float) -> Tensor:
    """Σ over the layers of reg (mean scale - target)², with reg = strength |mean scale - target| without a gradient.

    ``scales`` holds the scales of each layer, ``target`` the mean that they should have.
    """
    terms = []
    for scale in scales:
        gap = scale.mean() - target
        terms.append(strength * gap.detach().abs() * gap.square())
    return torch.stack(terms).sum()


@dataclass(frozen=True, kw_only=True)
class AutoPruner:
    """AutoPruner as a pruning method."""

    name: str = "autopruner"
    layer_adaptive: bool = False
    sample_adaptive: bool = False
    config: AutoPrunerConfig = field(default_factory=AutoPrunerConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one channel in each layer already exceeds the budget."""
        cutting = Cutting(net, task, self.name)
        cutting.check_emptying(removable_groups(cutting.channel_groups, added=False))

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Trains with code layers, cuts the network, fine-tunes it."""
        cutting = Cutting(net, task, self.name)
        if cutting.example.dim() != 4:
            shape = tuple(cutting.example.shape)
            raise SanpError(f"autopruner takes images, and the example is {shape}: choose l1 or ns")
        layers = removable_groups(cutting.channel_groups, added=False)
        equal = {int(group): 0.0 for groups in layers.values() for group in groups}
        rate = cutting.level(lambda rate: least_of_each_layer(cutting.channel_groups, layers, equal, rate), 0.0, 1.0)
        sites = {path: cutting.channel_groups.norm_of.get(path, path) for path in layers}
        coded = CodedNetwork(cutting.net, sites, cutting.example)
        learn, fine = epochs_in_parts(task, self.config.code_share, 1 - self.config.code_share)
        if learn:
            yield self._code_stage(coded, cutting.task, learn, 1 - rate)
        coded.remove_codes()
        scores = ranked(layers, code_scores(cutting, coded, layers))

        def removed_at(threshold: float) -> set[int]:
            return below(cutting.channel_groups, scores, threshold)

        threshold = cutting.level(removed_at, -1.0, max(scores.values()))
        finished = yield from cutting.fine_tune(cutting.without(removed_at(threshold)), fine)
        return finished

    def _code_stage(self, coded: CodedNetwork, task: Task, epochs: int, target: float) -> Stage:
        def steepen(progress: float) -> None:
            for code in coded.layers.values():
                code.steepness.fill_(1 + (self.config.steepest - 1) * progress)

        def penalty(forward: Forward) -> Tensor:
            return rate_penalty((gate.saliency for gate in forward.gates.values()), target, self.config.strength)

        adam = torch.optim.AdamW(coded.code_parameters(), lr=self.config.lr, weight_decay=0.0)
        return plain_stage(
            "code",
            coded,
            task,
            epochs,
            penalty=penalty,
            before_step=steepen,
            only=coded.network_parameters(),
            also_train=(tuned(adam, flat(task.config.rise)),),
        )


def code_scores(cutting: Cutting, coded: CodedNetwork, layers: dict[str, Tensor]) -> dict[int, float]:
    """The running mean of v of each removable channel group; it is negative where σ(α v) < 0.5.

    ``layers`` holds the removable groups of each convolution, by path.
    """
    scores = {}
    for path, groups in layers.items():
        channels = cutting.channel_groups.groups_of(cutting.channel_groups.members[path].outputs).tolist()
        of = dict(zip(channels, coded.layers[path].mean_v.tolist(), strict=True))
        scores.update({int(group): of[int(group)] for group in groups})
    return scores
