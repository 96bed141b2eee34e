"""D2NN, Dynamic Deep Neural Networks (Liu and Deng, 2018): control nodes choose which of two modules runs.

Here the two modules are a whole convolution and its first quarter of channels (the "high-low" network of that paper),
and each convolution has a control node that reads the layer's input. The reward of a forward, the episode, is
λ · right - (1 - λ) · kept. Q-learning moves the value of every action of the episode towards that one reward.
λ = 1 / (1 + price), and the price follows the budget.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.devices import exact_on
from sanp.core.errors import SanpError
from sanp.gating.gating import MakeSPM
from sanp.methods.parts.chosen_width import ChoosingSPM
from sanp.methods.parts.q_learning import ChoosingMethod, Episode, taken
from sanp.spm.module import SPMConfig
from sanp.spm.saliency import Saliency, descriptor

WIDTHS = (0.25, 1.0)
HIDDEN = 32


@dataclass(frozen=True, kw_only=True)
class D2NNConfig:
    """Settings of Dynamic Deep Neural Networks."""

    explore: float = 0.5
    """ε at the start: share of the samples that take a random action in training; falls to 0.05"""
    lr: float = 1e-3
    """learning rate of the control nodes (AdamW)"""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.explore <= 1:
            raise SanpError(f"explore {self.explore} is a share of the samples: give it from 0 to 1")
        if not self.lr > 0:
            raise SanpError(f"lr {self.lr} must be above 0")


class ControlNode(Saliency):
    """Predicts Q, the values of running the first quarter and of running the whole layer."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(in_channels, HIDDEN)
        self.values = nn.Linear(HIDDEN, len(WIDTHS))
        with torch.no_grad():  # at first the whole layer has the higher value, so that the network is unchanged
            self.values.weight.mul_(0.01)
            self.values.bias.copy_(0.1 * torch.tensor(WIDTHS))

    @property
    def flops(self) -> int:
        """Multiply-adds of the two layers for one image."""
        return self.hidden.weight.numel() + self.values.weight.numel()

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, 2)
        """The values, in float32 even under autocast."""
        with exact_on(x):
            values: Tensor = self.values(torch.relu(self.hidden(descriptor(x))))
            return values


def d2nn_spm(in_channels: int, out_channels: int, config: SPMConfig) -> ChoosingSPM:
    """An SPM with a control node; SANP's settings in ``config`` are not used."""
    return ChoosingSPM(ControlNode(in_channels), out_channels, WIDTHS)


def episode_reward(right: Tensor, kept: Tensor, price: float) -> Tensor:
    """The reward (N,): λ · right - (1 - λ) · kept, with λ = 1 / (1 + price).

    ``right`` is 1 for each sample that is classified correctly, else 0; ``kept`` is the share of the dense FLOPs that
    each sample computes.
    """
    mix = 1 / (1 + price)
    return mix * right - (1 - mix) * kept


@dataclass(frozen=True, kw_only=True)
class D2NN(ChoosingMethod):
    """D2NN as a pruning method."""

    name: str = "d2nn"
    layer_adaptive: bool = True
    sample_adaptive: bool = True
    simplified: str = (
        "the modules are a layer and its own first quarter, not those of a network made for choices; rewards are those "
        "of single images, not of sets of them"
    )
    widths: tuple[float, ...] = WIDTHS
    config: D2NNConfig = field(default_factory=D2NNConfig)

    def spm_maker(self) -> MakeSPM:
        """SPMs with a control node each."""
        return d2nn_spm

    def learn(self, episode: Episode, price: float) -> Tensor:
        """The mean squared distance of the values of the chosen actions from the episode's reward."""
        reward = episode_reward(episode.right, episode.kept, price)  # (N,)
        found = torch.stack([taken(choice) for choice in episode.choices], 1)  # (N, layers)
        return (found - reward[:, None]).square().mean()
