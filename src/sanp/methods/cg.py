"""CG, Channel Gating (Hua et al., 2019): a quarter of the input channels decides, pixel by pixel, on the other three.

Cross entropy + 1e-4 Σ (δ - T)²: every threshold δ is drawn to the target T. T is the one whose cost is the budget; it
follows the running cost in training and is set at the end on training images. The first convolution and 1x1 shortcuts
are not gated. It saves pixels, not channels: its FLOPs count, but an engine that skips channels gains nothing from it.
"""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.core.modules import evaluating
from sanp.methods.parts.bisection import check_reach, find_level
from sanp.methods.parts.pixel_gate import PixelGatedNetwork
from sanp.methods.parts.retrain import epochs_in_parts, finish_norms, share_of
from sanp.spm.recording import record
from sanp.tracing.topology import module_path
from sanp.training.controller import BudgetController
from sanp.training.fitting import Stages
from sanp.training.optimizers import schedule, sgd, tuned
from sanp.training.precision import Format
from sanp.training.stage import Outcome, Stage, steps_in
from sanp.training.task import Task, share_right, with_teacher

OPEN, CLOSED = -6.0, 6.0
"""targets, in deviations of the partial sums, at which all gates are on or off"""


@dataclass(frozen=True, kw_only=True)
class CGConfig:
    """Settings of Channel Gating."""

    groups: int = 4
    """p: the base path is 1/p of the input channels"""
    hold: float = 1e-4
    """weight of Σ (δ - T)²"""
    gain: float = 0.5
    """how far T moves in a step for a miss of the whole network"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.groups < 2:
            raise SanpError(f"groups {self.groups} must be at least 2: one of them is the base path")
        if self.hold < 0 or not self.gain > 0:
            raise SanpError(f"hold {self.hold} must not be negative and gain {self.gain} must be above 0")


class TargetThreshold:
    """T in training: rises while the cost is above the falling target, falls while below."""

    def __init__(self, network: PixelGatedNetwork, share: float, task: Task, steps: int, gain: float) -> None:
        self.network, self.steps, self.gain = network, steps, gain
        self.controller = BudgetController(share, task.controller)
        self.step = 0
        self.now = OPEN / 3

    @property
    def target(self) -> float:
        """What a step should cost now."""
        return self.controller.target_at(self.step / self.steps)

    def update(self, cost: float) -> None:
        """Takes the cost of one step, a share of the dense FLOPs."""
        self.controller.update(cost, self.step / self.steps)
        self.now = min(CLOSED, max(OPEN, self.now + self.gain * (cost - self.target)))
        self.step += 1
        self.network.set_target(self.now)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"step": self.step, "now": self.now, **self.controller.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where the state was taken."""
        self.step, self.now = int(state["step"]), float(state["now"])
        self.controller.restore(state)


@dataclass(frozen=True, kw_only=True)
class CG:
    """The method."""

    name: str = "cg"
    layer_adaptive: bool = False
    sample_adaptive: bool = True
    config: CGConfig = field(default_factory=CGConfig)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Pixel gates, joint training, the target threshold that meets the budget."""
        network = PixelGatedNetwork(copy.deepcopy(net), task.example(), self.config.groups)
        share = share_of(task, network.cost.dense_flops)
        check_reach(base_share(network), share, self.name)
        task = with_teacher(task, net)
        epochs = epochs_in_parts(task, 1)[0]
        if epochs:
            yield self._joint_stage(network, task, share, epochs)
        finish_norms(network, task)
        calibrate_target(network, task, share)
        return network

    def _joint_stage(self, network: PixelGatedNetwork, task: Task, share: float, epochs: int) -> Stage:
        term = TargetThreshold(network, share, task, epochs * steps_in(task.loader), self.config.gain)
        network.set_target(term.now)
        if task.teacher is not None:
            Format(task.teacher, task.config.precision)

        def step_loss(x: Tensor, y: Any, progress: float) -> Outcome:
            with record(network) as gates:
                output = network(x)
            loss = task.loss_with_teacher(x, output, y)
            total = loss + self.config.hold * torch.stack([gate.offset.square().sum() for gate in network.gates]).sum()
            target, now = term.target, term.now
            decisions = {name: gate.decision for name, gate in gates.items()}
            term.update(float(network.cost.per_sample(decisions).mean()) / network.cost.dense_flops)
            right = share_right(output, y)
            return Outcome(total, right, term.controller.running_cost, target, now, shown=loss.item())

        optimizers = [tuned(sgd(list(network.parameters()), task.config.lr, task.config), schedule(task.config))]
        format = Format(network, task.config.precision)
        return Stage("joint", network, task.loader, epochs, step_loss, optimizers, format, also=term)


def base_share(network: PixelGatedNetwork) -> float:
    """The cost with every gate off, as a share of the dense FLOPs."""
    off = {layer.name: torch.zeros(1, layer.out_channels) for layer in network.cost.layers}
    gated = {name: zeros for name, zeros in off.items() if module_path(name) in network.cost.base}
    return float(network.cost.per_sample(gated)) / network.cost.dense_flops


@torch.no_grad()
def calibrate_target(network: PixelGatedNetwork, task: Task, share: float) -> None:
    """Sets the target threshold whose mean cost on some training images is the share."""
    format = Format(network, task.config.precision)
    batches: list[Tensor] = []
    for x, _ in task.loader:
        batches.append(format.place(x))
        if sum(map(len, batches)) >= min(512, task.config.calibrate_images):
            break
    if not task.config.calibrate_images:
        return

    def cost_at(target: float) -> float:
        network.set_target(target)
        total = 0.0
        for x in batches:
            with record(network) as gates:
                network(x)
            total += float(network.cost.per_sample({name: gate.decision for name, gate in gates.items()}).sum())
        return total / sum(map(len, batches)) / network.cost.dense_flops

    with evaluating(network), format.autocast():
        cost_at(find_level(cost_at, share, OPEN, CLOSED, steps=14))
