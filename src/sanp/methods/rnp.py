"""RNP, Runtime Neural Pruning (Lin et al., 2017): an agent decides at each layer how many of 4 channel groups to run.

State: the mean of each channel of the layer's input, encoded to 128 numbers, goes through a recurrent network that all
layers share. Action i runs the first i of 4 groups. Reward: -price · i/4 / layers at every layer, and -α · loss at the
last, where the loss is cross entropy. Q-learning: the value of an action is its reward plus the best value at the next
layer. The price follows the budget.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.devices import exact_on
from sanp.core.errors import SanpError
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.methods.parts.chosen_width import ChoosingSPM
from sanp.methods.parts.q_learning import ChoosingMethod, Episode, taken
from sanp.spm.module import SPMConfig
from sanp.spm.saliency import Saliency, descriptor
from sanp.tracing.topology import module_path

GROUPS = 4
STATE_SIZE = 128
GROUP_WIDTHS = tuple((i + 1) / GROUPS for i in range(GROUPS))


@dataclass(frozen=True, kw_only=True)
class RNPConfig:
    """Settings of Runtime Neural Pruning."""

    explore: float = 0.5
    """ε at the start: share of the samples that take a random action in training; falls to 0.05"""
    importance: float = 0.1
    """α: weight of the cross entropy in the reward"""
    lr: float = 1e-3
    """learning rate of the agent (AdamW)"""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.explore <= 1:
            raise SanpError(f"explore {self.explore} is a share of the samples: give it from 0 to 1")
        if not self.importance > 0 or not self.lr > 0:
            raise SanpError(f"importance {self.importance} and lr {self.lr} must be above 0")


class Agent(nn.Module):
    """The part of the agent that all layers share: the recurrent network, and the layer that predicts action values."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(STATE_SIZE, STATE_SIZE)
        self.decode = nn.Linear(STATE_SIZE, GROUPS)
        with torch.no_grad():  # at first running all groups has the highest value, so that the network is unchanged
            self.decode.weight.mul_(0.01)
            self.decode.bias.copy_(0.1 * torch.tensor(GROUP_WIDTHS))


_hidden: ContextVar[Tensor | None] = ContextVar("hidden", default=None)
"""the hidden state of the recurrent network within one forward; the last layer clears it"""


class RecurrentValues(Saliency):
    """Predicts Q, the value of each action, at one layer.

    ``agent`` is shared by all layers. The attributes ``first`` and ``last`` say whether this is the first or the last
    layer of the network.
    """

    def __init__(self, in_channels: int, agent: Agent) -> None:
        super().__init__()
        self.encode = nn.Linear(in_channels, STATE_SIZE)
        self.agent = agent
        self.first = self.last = False

    @property
    def flops(self) -> int:
        """Multiply-adds for one image: the encoder, one step of the recurrent network and the action values."""
        cell, decode = self.agent.cell, self.agent.decode
        return sum(w.numel() for w in (self.encode.weight, cell.weight_ih, cell.weight_hh, decode.weight))

    def forward(self, x: Tensor) -> Tensor:  # (N, C_in, ...) -> (N, GROUPS)
        """The action values, in float32 even under autocast."""
        with exact_on(x):
            before = None if self.first else _hidden.get()
            hidden = self.agent.cell(torch.relu(self.encode(descriptor(x))), before)
            _hidden.set(None if self.last else hidden)
            values: Tensor = self.agent.decode(hidden)
            return values


def q_targets(values: list[Tensor], rewards: Tensor) -> Tensor:
    """The targets (N, layers) of Q-learning: the reward at each layer plus the best value at the next one.

    ``values`` holds the action values (N, actions) of each layer, ``rewards`` is (N, layers).
    """
    following = [value.detach().amax(1) for value in values[1:]] + [torch.zeros_like(rewards[:, 0])]
    return rewards + torch.stack(following, 1)


@dataclass(frozen=True, kw_only=True)
class RNP(ChoosingMethod):
    """RNP as a pruning method."""

    name: str = "rnp"
    layer_adaptive: bool = True
    sample_adaptive: bool = True
    simplified: str = "network and agent learn from the same forward, not in turns; price and widths follow the budget"
    widths: tuple[float, ...] = GROUP_WIDTHS
    config: RNPConfig = field(default_factory=RNPConfig)

    def spm_maker(self) -> MakeSPM:
        """SPMs that share one agent."""
        agent = Agent()

        def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> ChoosingSPM:
            return ChoosingSPM(RecurrentValues(in_channels, agent), out_channels, GROUP_WIDTHS)

        return make_spm

    def prepare(self, gated: GatedNetwork) -> None:
        """Marks the first and the last layer, where the agent's hidden state begins and ends."""
        layers = [gated.layers[module_path(name)].spm.saliency for name in gated.cost.gates]
        if layers:
            layers[0].first = layers[-1].last = True  # type: ignore[assignment]

    def learn(self, episode: Episode, price: float) -> Tensor:
        """The mean squared distance of the values of the chosen actions from their targets."""
        choices = episode.choices
        rewards = -price * torch.stack([choice.width for choice in choices], 1) / len(choices)  # (N, layers)
        rewards[:, -1] -= self.config.importance * episode.loss
        targets = q_targets([choice.values for choice in choices], rewards)
        found = torch.stack([taken(choice) for choice in choices], 1)
        return (found - targets).square().mean()
