"""CG, Channel Gating (Hua et al., 2019): a quarter of the input channels decides for each pixel if the rest is added.

The base path is grouped, as the authors have it: inputs and outputs are divided into p blocks, and output block g is
decided by input block g. Their shuffling of the inputs becomes a choice of which channels form a block, so that a
pretrained network is not changed by it. Gated are the convolutions that an activation follows, not the first one, 1x1
shortcuts, or one before an addition; those too only if the budget cannot be met otherwise.

The loss is cross entropy + 1e-4 Σ (δ - T)², which pulls every threshold δ towards the target T. The authors' T is a
constant; here it follows the budget in training, and at the end it is set on training images so that the FLOPs meet the
budget. Their sparse back-propagation, which saves time in training, is left out. Since CG skips pixels and not
channels, an engine that skips channels does not become faster.
"""

import copy
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from sanp.core.bisection import find_level
from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.core.modules import evaluating
from sanp.gating.accounting import mean_kept
from sanp.gating.thresholds import kept_on
from sanp.methods.parts.pixel_gate import PixelGatedNetwork, gateable
from sanp.methods.parts.retrain import check_reach, epochs_in_parts, kept_of
from sanp.spm.recording import decisions_of
from sanp.tracing.topology import module_path
from sanp.training.config import FitConfig
from sanp.training.controller import BudgetController, IntegralController
from sanp.training.finish import finish_norms, first_images
from sanp.training.optimizers import Scheduled, schedule, scheduled, sgd
from sanp.training.precision import Format
from sanp.training.stage import Stage, Stages, steps_in
from sanp.training.task import Task, with_teacher
from sanp.training.term import Contribution, Forward, stage_with_term

OPEN, CLOSED = -6.0, 6.0
"""targets T at which all gates are on or off, in deviations of the partial sums"""


@dataclass(frozen=True, kw_only=True)
class CGConfig:
    """Settings of Channel Gating."""

    groups: int = 4
    """p: 1/p of the input channels, the base path, is always computed and decides about the others"""
    grouped: bool = True
    """output block g has input block g as its base path; if not, the first 1/p of the inputs serves all outputs"""
    shuffle: bool = True
    """with grouped: a block has inputs from all over the layer; if not, neighbouring ones"""
    gate_all: bool | None = None
    """gate convolutions without an activation too, as before an addition; none: only if the budget needs it"""
    decay: bool = False
    """apply weight decay to the thresholds, which the authors do not"""
    hold: float = 1e-4
    """weight of Σ (δ - T)², which pulls the thresholds δ towards the target T"""
    gain: float = 0.5
    """how far T moves in a step if the FLOPs are off the target by all dense FLOPs"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.groups < 2:
            raise SanpError(f"groups {self.groups} must be at least 2: one of them is the base path")
        if self.hold < 0 or not self.gain > 0:
            raise SanpError(f"hold {self.hold} must not be negative and gain {self.gain} must be above 0")


class HeldThresholds:
    """The penalty hold · Σ (δ - T)². T is the level of ``controller``: it rises while too many FLOPs are computed."""

    def __init__(self, network: PixelGatedNetwork, controller: IntegralController, hold: float) -> None:
        self.network, self.controller, self.hold = network, controller, hold
        network.set_target(controller.level)

    def contribute(self, forward: Forward) -> Contribution:
        """The penalty of this step; T is set for the next one."""
        loss = self.hold * torch.stack([gate.offset.square().sum() for gate in self.network.gates]).sum()
        target, level = self.controller.target, self.controller.level
        self.controller.update(mean_kept(self.network.cost, decisions_of(forward.gates)))
        self.network.set_target(self.controller.level)
        return Contribution(loss, self.controller.running_kept, target, level)

    def state(self) -> dict[str, float | None]:
        """The state that a checkpoint keeps."""
        return self.controller.state()

    def restore(self, state: dict[str, float | None]) -> None:
        """Restores a state that :meth:`state` returned."""
        self.controller.restore(state)


@dataclass(frozen=True, kw_only=True)
class CG:
    """Channel Gating as a pruning method."""

    name: str = "cg"
    layer_adaptive: bool = False
    sample_adaptive: bool = True
    simplified: str = ""
    config: CGConfig = field(default_factory=CGConfig)

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if the base paths alone exceed the budget."""
        self._network(net, task)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Inserts pixel gates, trains jointly, then sets the target T that meets the budget."""
        network, kept = self._network(net, task)
        task = with_teacher(task, net)
        epochs = epochs_in_parts(task, 1)[0]
        if epochs:
            yield self._joint_stage(network, task, kept, epochs)
        finish_norms(network, task)
        calibrate_target(network, task, kept)
        return network

    def _network(self, net: nn.Module, task: Task) -> tuple[PixelGatedNetwork, float]:
        """A copy with pixel gates, and the budget as a share of the dense FLOPs."""
        example, groups = task.example(net), self.config.groups
        few = self.config.gate_all is None and bool(gateable(net, example, groups, gate_all=False))
        for gate_all in (False, True) if few else (self.config.gate_all is not False,):
            how = {"grouped": self.config.grouped, "shuffle": self.config.shuffle, "gate_all": gate_all}
            network = PixelGatedNetwork(copy.deepcopy(net), example, groups, **how)
            kept = kept_of(task, network.cost.dense_flops)
            if kept >= base_kept(network):
                break
        check_reach(base_kept(network), kept, self.name)
        return network, kept

    def _joint_stage(self, network: PixelGatedNetwork, task: Task, kept: float, epochs: int) -> Stage:
        controller = IntegralController(
            BudgetController(kept, task.controller),
            epochs * steps_in(task.loader),
            gain=self.config.gain,
            start=OPEN / 3,
            lowest=OPEN,
            highest=CLOSED,
        )
        term = HeldThresholds(network, controller, self.config.hold)
        return stage_with_term("joint", network, task, epochs, self._optimizers(network, task.config), term)

    def _optimizers(self, network: PixelGatedNetwork, config: FitConfig) -> list[Scheduled]:
        """SGD for the network, and SGD for the thresholds, by default without weight decay."""
        thresholds = [gate.offset for gate in network.gates]
        own = {id(threshold) for threshold in thresholds}
        others = [parameter for parameter in network.parameters() if id(parameter) not in own]
        undecayed = config if self.config.decay else replace(config, weight_decay=0.0)
        return [
            scheduled(sgd(others, config.lr, config), schedule(config)),
            scheduled(sgd(thresholds, config.lr, undecayed), schedule(config)),
        ]


def base_kept(network: PixelGatedNetwork) -> float:
    """The share of the dense FLOPs that is computed if every gate is off."""
    off = {layer.name: torch.zeros(1, layer.out_channels) for layer in network.cost.layers}
    gated = {name: zeros for name, zeros in off.items() if module_path(name) in network.cost.base}
    return mean_kept(network.cost, gated)


@torch.no_grad()
def calibrate_target(network: PixelGatedNetwork, task: Task, kept: float) -> None:
    """Sets the target T so that the share ``kept`` of the dense FLOPs is computed for some training images."""
    if not task.config.calibrate_images:
        return
    format = Format(network, task.config.precision, exact=True)
    batches = first_images(task.loader, min(512, task.config.calibrate_images), format)

    def kept_at(target: float) -> float:
        network.set_target(target)
        return kept_on(network, batches)

    with evaluating(network), format.autocast():
        kept_at(find_level(kept_at, kept, OPEN, CLOSED, steps=14))
