"""Random, a control: removes channels at random, the same share of each layer, and fine-tunes what is left."""

from dataclasses import dataclass, field

import torch
from torch import nn

from sanp.core.checks import check_fields
from sanp.methods.cutting.cutting import Cutting, check_emptying
from sanp.methods.cutting.ranking import removable_groups
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.training.stage import Stages
from sanp.training.task import Task


@dataclass(frozen=True, kw_only=True)
class RandomChannelsConfig:
    """Settings of random pruning."""

    seed: int = 0
    """which channels are drawn"""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class RandomChannels:
    """Random pruning as a method."""

    name: str = "random"
    layer_adaptive: bool = False
    sample_adaptive: bool = False
    simplified: str = ""
    config: RandomChannelsConfig = field(default_factory=RandomChannelsConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one channel in each layer already exceeds the budget."""
        check_emptying(net, task, self.name)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Cuts the network, then fine-tunes it for all epochs."""
        cutting = Cutting(net, task, self.name)
        layers = removable_groups(cutting.channel_groups)
        generator = torch.Generator().manual_seed(self.config.seed)
        channels = [int(group) for groups in layers.values() for group in groups]
        scores = dict(zip(channels, torch.rand(len(channels), generator=generator).tolist(), strict=True))
        smaller = cutting.without(cutting.least_of_each_layer(layers, scores))
        finished = yield from cutting.fine_tune(smaller, epochs_in_parts(task, 1)[0])
        return finished
