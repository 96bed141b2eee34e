"""D2NN, Dynamic Deep Neural Networks (Liu and Deng, 2018): control nodes choose which of two modules runs.

Here each convolution is such a pair, the whole of it or its first quarter of channels (their "high-low" network), with
a control node of its own on the layer's input. Reward of a whole episode: λ · right - (1 - λ) · cost; Q-learning moves
the value of every action taken in the episode towards that one reward. λ = 1 / (1 + price); the budget sets the price.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.gating.gating import MakeSPM
from sanp.methods.parts.q_learning import ChoosingMethod, ChoosingSPM, Episode, taken
from sanp.spm.module import SPMConfig
from sanp.spm.saliency import Saliency, descriptor

WIDTHS = (0.25, 1.0)
HIDDEN = 32


@dataclass(frozen=True, kw_only=True)
class D2NNConfig:
    """Settings of Dynamic Deep Neural Networks."""

    explore: float = 0.5
    """ε at the start; it falls to 0.05"""
    lr: float = 1e-3
    """learning rate of the control nodes (AdamW)"""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.explore <= 1:
            raise SanpError(f"explore {self.explore} is a share of the samples: give it from 0 to 1")
        if not self.lr > 0:
            raise SanpError(f"lr {self.lr} must be above 0")


class ControlNode(Saliency):
    """Q of running the small or the whole module."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(in_channels, HIDDEN)
        self.values = nn.Linear(HIDDEN, len(WIDTHS))
        with torch.no_grad():  # at the start the whole module is worth more: the network is as it was
            self.values.weight.mul_(0.01)
            self.values.bias.copy_(0.1 * torch.tensor(WIDTHS))

    @property
    def flops(self) -> int:
        """Multiply-adds of the two layers for one image."""
        return self.hidden.weight.numel() + self.values.weight.numel()

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, 2)
        """The values, in float32 under autocast too."""
        with torch.autocast(x.device.type, enabled=False):
            values: Tensor = self.values(torch.relu(self.hidden(descriptor(x))))
            return values


def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> ChoosingSPM:
    """One control node."""
    return ChoosingSPM(ControlNode(in_channels), out_channels, WIDTHS)


def episode_reward(right: Tensor, kept: Tensor, price: float) -> Tensor:
    """λ · right - (1 - λ) · kept with λ = 1 / (1 + price). (N,)"""
    mix = 1 / (1 + price)
    return mix * right - (1 - mix) * kept


@dataclass(frozen=True, kw_only=True)
class D2NN(ChoosingMethod):
    """The method."""

    name: str = "d2nn"
    layer_adaptive: bool = True
    sample_adaptive: bool = True
    widths: tuple[float, ...] = WIDTHS
    config: D2NNConfig = field(default_factory=D2NNConfig)

    def spm_maker(self) -> MakeSPM:
        """A control node at every convolution."""
        return make_spm

    def learn(self, episode: Episode, price: float) -> Tensor:
        """The mean squared distance of the values taken from the episode's reward."""
        reward = episode_reward(episode.right, episode.kept, price)  # (N,)
        found = torch.stack([taken(choice) for choice in episode.choices], 1)  # (N, layers)
        return (found - reward[:, None]).square().mean()
