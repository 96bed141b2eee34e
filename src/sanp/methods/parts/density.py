"""One density for all layers: the same share of channels is open in each layer, and it is set to meet the budget."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from sanp.core.bisection import find_level
from sanp.core.distributed import same_everywhere
from sanp.gating.accounting import mean_kept
from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import calibrate_thresholds
from sanp.spm.recording import decisions_of
from sanp.spm.top_k import TopK, top_k
from sanp.tracing.topology import module_path
from sanp.training.finish import finish_norms, first_images
from sanp.training.optimizers import joint_optimizers
from sanp.training.precision import Format
from sanp.training.stage import Stage, steps_in
from sanp.training.task import Task
from sanp.training.term import Contribution, Forward, Penalty, stage_with_term

EVERY = 10
"""steps between two updates of the density"""
SAMPLES = 32
"""images of a batch on which the density is set; the FLOPs of a density vary little between images"""
CALIBRATE = 64
"""training images on which the density is set at the end"""


def winners(gated: GatedNetwork) -> dict[str, TopK]:
    """The binarizers that open a fixed number of channels, by layer name."""
    found = {name: layer.spm.binarize for name, layer in gated.layers.items()}
    return {name: binarize for name, binarize in found.items() if isinstance(binarize, TopK)}


def set_density(gated: GatedNetwork, density: float) -> None:
    """Sets the density of all layers."""
    for each in winners(gated).values():
        each.density = density


class DensityTerm:
    """Follows a falling target: every few steps it sets the density that meets the target for the present batch.

    ``steps`` is the number of steps of the stage. ``target_at`` gives the wanted share of the dense FLOPs when a share
    of the steps is done. ``penalty`` is added to the loss.
    """

    def __init__(
        self, gated: GatedNetwork, steps: int, target_at: Callable[[float], float], penalty: Penalty | None = None
    ) -> None:
        self.gated, self.steps, self.target_at, self.penalty = gated, steps, target_at, penalty
        self.step = 0
        self.density = 1.0
        self.kept = 1.0

    @property
    def target(self) -> float:
        """The share of the dense FLOPs that the next step should compute."""
        return self.target_at(self.step / self.steps)

    def contribute(self, forward: Forward) -> Contribution:
        """The penalty of this step; every few steps the density is set again."""
        loss = None if self.penalty is None else self.penalty(forward)
        target = self.target
        self.kept = mean_kept(self.gated.cost, decisions_of(forward.gates))
        self.step += 1
        if self.step % EVERY == 1:
            saliencies = {name: gate.saliency.detach()[:SAMPLES] for name, gate in forward.gates.items()}
            self.density = find_level(
                lambda density: kept_at_density(self.gated, saliencies, density), self.target, 1.0, 0.0, steps=14
            )
            set_density(self.gated, self.density)
        return Contribution(loss, self.kept, target, 0.0)

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint keeps; the numbers of open channels are in the network itself."""
        return {"step": self.step, "density": self.density, "cost": self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a state that :meth:`state` returned."""
        self.step, self.density, self.kept = int(state["step"]), float(state["density"]), float(state["cost"])


def kept_at_density(gated: GatedNetwork, saliencies: Mapping[str, Tensor], density: float) -> float:
    """The mean share of the dense FLOPs that is computed for these saliencies, by layer name, at a density."""
    of = winners(gated)
    decisions = {}
    for name, saliency in saliencies.items():
        each, group = of[module_path(name)], gated.layers[module_path(name)].spm.group
        score = saliency.reshape(len(saliency), -1, group).mean(2)
        decisions[name] = top_k(score, each.count(density)).repeat_interleave(group, dim=1)
    return mean_kept(gated.cost, decisions)


def density_stage(
    gated: GatedNetwork,
    task: Task,
    epochs: int,
    target_at: Callable[[float], float],
    penalty: Penalty | None = None,
) -> Stage:
    """A stage that trains all parameters while the density follows a target; it has no cost loss.

    The arguments are those of :class:`DensityTerm`, and the number of epochs.
    """
    steps = max(1, epochs * steps_in(task.loader))
    optimizers = joint_optimizers(gated, task.config, steps)
    return stage_with_term("joint", gated, task, epochs, optimizers, DensityTerm(gated, steps, target_at, penalty))


def finish_density(gated: GatedNetwork, task: Task, kept: float) -> None:
    """After the last step: estimates the batch norm statistics, and sets the density so that ``kept`` is computed.

    ``kept`` is a share of the dense FLOPs; it is met on some training images.
    """
    finish_norms(gated, task)
    format = Format(gated, task.config.precision, exact=True)
    batches = first_images(task.loader, CALIBRATE, format)
    with format.autocast():
        calibrate_thresholds(gated, kept, batches)
    same_everywhere(gated)
