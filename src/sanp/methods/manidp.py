"""ManiDP (Tang et al., 2021): images that are easy, or alike, get sub-networks that are small, or alike.

A channel is open where its saliency π = relu(s) is at least ξ, the threshold of its layer; the features are multiplied
by π, and no gradient flows through the decision. ξ is the k-th largest of the mean saliencies of the layer's channels,
k = ceil(density · C) with one density for all layers, which falls from 1 along half a cosine.

loss = task + λ Σ_l mean_i w_i mean_c π_ic + γ Σ_l mean_ij (R_ij - T_ij)²
w_i = max(0, (C - CE_i) / C) with C half of the mean cross entropy so far: only easy images are pushed to be sparse.
T_ij is the cosine similarity of the saliencies of images i and j, R_ij that of their features, relu(BatchNorm(f * x))
averaged over positions.

The means over the last epoch are running means here, the predictors start from π = 1 as SANP's do, and the density is
the one that meets the budget.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sanp.core.bisection import find_level
from sanp.core.checks import check_fields
from sanp.core.distributed import same_everywhere
from sanp.core.errors import SanpError
from sanp.core.modules import evaluating
from sanp.core.outputs import are_classes, logits_of
from sanp.gating.accounting import mean_kept
from sanp.gating.gating import MakeSPM
from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import kept_on
from sanp.methods.parts.gating_method import GatingMethod
from sanp.methods.parts.pooled_features import PooledFeatures
from sanp.methods.parts.retrain import epochs_in_parts
from sanp.spm.binarize import AboveZero, hard_decision
from sanp.spm.module import SPM, SPMConfig, predicted_saliency
from sanp.spm.recording import decisions_of, record, saliencies_of
from sanp.tracing.topology import module_path
from sanp.training.finish import finish_norms, first_images
from sanp.training.optimizers import joint_optimizers
from sanp.training.precision import Format
from sanp.training.stage import Stage, steps_in
from sanp.training.task import Task
from sanp.training.term import Contribution, Forward, stage_with_term

MEAN_STEPS = 100
"""running means of saliencies and cross entropies are those of all steps up to this many, then a hundredth is new"""
STEPS_BETWEEN, SHARE_BETWEEN = 10, 0.02
"""thresholds are set after so many steps, or after this share of all steps if that is fewer"""
WIDE = 80
"""channels from which on the authors' predictors have half as many hidden units, not as many"""
FINISH_IMAGES = 512
"""training images on which the thresholds are set at the end"""


@dataclass(frozen=True, kw_only=True)
class ManiDPConfig:
    """Settings of ManiDP; the defaults are those that the authors give for CIFAR-10."""

    sparsity: float = 5e-3
    """λ: weight of the saliencies of easy images in the loss"""
    similarity: float = 1.0
    """γ: weight of the squared differences between similarities of saliencies and of features"""
    easy: float = 0.5
    """an image is easy if its cross entropy is below this part of the mean"""
    reduction: int | None = None
    """r: the hidden layer of a saliency predictor has C_out / r units; none: 2, and 1 below 80 channels"""
    standardize: bool = False
    """standardise the descriptors over the images, as SANP does"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sparsity < 0 or self.similarity < 0:
            raise SanpError(f"sparsity {self.sparsity} and similarity {self.similarity} are weights: give 0 or more")
        if not self.easy > 0 or (self.reduction is not None and self.reduction < 1):
            raise SanpError(f"easy {self.easy} must be above 0 and reduction {self.reduction} at least 1")

    def reduction_for(self, out_channels: int) -> int:
        """r of a layer with this number of output channels."""
        return self.reduction or (2 if out_channels >= WIDE else 1)


def easiness(losses: Tensor, threshold: float) -> Tensor:
    """w_i of each image from its cross entropy (N,): 1 for a loss of 0, 0 from ``threshold`` on."""
    return ((threshold - losses) / max(threshold, 1e-12)).clamp(min=0)


def similarity_gap(saliency: Tensor, features: Tensor) -> Tensor:
    """The mean squared difference of the cosine similarities between images: of saliencies, of features (N, C)."""
    t, r = (F.normalize(each.float(), dim=1) for each in (saliency, features))
    return (r @ r.T - t @ t.T).square().mean()


def threshold_at(means: Tensor, density: float) -> float:
    """ξ: the smallest of the ceil(density C) largest mean saliencies (C,); 0 if all channels are to be open.

    It is the number just below, since an SPM opens what is above its threshold, and here a saliency of ξ is open too.
    """
    k = min(len(means), max(1, math.ceil(density * len(means) - 1e-9)))
    if k == len(means):
        return 0.0
    smallest = means.topk(k).values[-1].float()
    return float(torch.nextafter(smallest, smallest.new_zeros(())))


class ManifoldTerm:
    """The two losses of ManiDP; every few steps the thresholds are set for the density that meets the target."""

    def __init__(self, gated: GatedNetwork, features: PooledFeatures, kept: float, config: ManiDPConfig) -> None:
        self.gated, self.features, self.kept, self.config = gated, features, kept, config
        self.means: dict[str, Tensor] = {}
        """running mean (C_out,) of each layer's saliencies"""
        self.loss: float | None = None
        """running mean of the cross entropy"""
        self.step = 0
        self.next_step, self.next_progress = 0, 0.0
        """when the thresholds are set again: at the first of both"""

    def contribute(self, forward: Forward) -> Contribution:
        """Both losses of this step; the thresholds follow the falling target."""
        losses = loss_of_each(forward)
        fresh = max(1 / (self.step + 1), 1 / MEAN_STEPS)
        mean_loss = float(losses.mean())
        self.loss = mean_loss if self.loss is None else (1 - fresh) * self.loss + fresh * mean_loss
        weights = easiness(losses, self.config.easy * self.loss)  # (N,)
        features = self.features.taken()
        sparse, alike = torch.zeros(()), torch.zeros(())
        for name, gates in forward.gates.items():
            saliency = gates.saliency.relu()
            path = module_path(name)
            mean = saliency.detach().float().mean(0)
            self.means[path] = torch.lerp(self.means.get(path, mean).to(mean.device), mean, fresh)
            sparse = sparse + (weights * saliency.mean(1)).mean()
            calls = features.get(module_path(name), [])
            if calls:
                alike = alike + similarity_gap(saliency, calls.pop(0))
        target = self.kept + (1 - self.kept) * (1 + math.cos(math.pi * forward.progress)) / 2
        kept = mean_kept(self.gated.cost, decisions_of(forward.gates))
        if self.step >= self.next_step or forward.progress >= self.next_progress:
            set_for_target(self.gated, self.means, saliencies_of(forward.gates), target)
            self.next_step, self.next_progress = self.step + STEPS_BETWEEN, forward.progress + SHARE_BETWEEN
        self.step += 1
        loss = self.config.sparsity * sparse + self.config.similarity * alike
        return Contribution(loss, kept, target, self.config.sparsity)

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        means = {name: mean.tolist() for name, mean in self.means.items()}
        return {"step": self.step, "next": [self.next_step, self.next_progress], "loss": self.loss, "means": means}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a state that :meth:`state` returned."""
        self.step, self.loss = int(state["step"]), state["loss"]
        self.next_step, self.next_progress = state.get("next", (self.step, 0.0))
        self.means = {name: torch.tensor(mean) for name, mean in state["means"].items()}


def loss_of_each(forward: Forward) -> Tensor:
    """The cross entropy of each image (N,), no gradient; an error if the task is no classification."""
    logits = logits_of(forward.output)
    if not are_classes(logits, forward.target) or logits.dim() != 2:
        raise SanpError("manidp asks how easy each image is by its cross entropy: it needs classes; choose sanp")
    return F.cross_entropy(logits.detach().float(), forward.target, reduction="none")


@torch.no_grad()
def set_for_target(
    gated: GatedNetwork, means: Mapping[str, Tensor], saliencies: Mapping[str, Tensor], kept: float
) -> None:
    """Sets the thresholds of the density with which a share ``kept`` of the FLOPs is computed for ``saliencies``.

    ``means`` has the mean saliency of each channel, by layer; ``saliencies`` (N, C_out) are those of some images.
    """

    def kept_at(density: float) -> float:
        decisions = {}
        for name, saliency in saliencies.items():
            threshold = threshold_at(means[module_path(name)], density)
            group = gated.layers[module_path(name)].spm.group
            score = saliency.reshape(len(saliency), -1, group).mean(2) - threshold
            decisions[name] = hard_decision(score).repeat_interleave(group, dim=1)
        return mean_kept(gated.cost, decisions)

    density = find_level(kept_at, kept, 1.0, 0.0, steps=16)
    for name, mean in means.items():
        gated.layers[name].spm.level = threshold_at(mean, density)


@dataclass(frozen=True, kw_only=True)
class ManiDP(GatingMethod):
    """ManiDP as a pruning method."""

    name: str = "manidp"
    layer_adaptive: bool = False
    sample_adaptive: bool = True
    config: ManiDPConfig = field(default_factory=ManiDPConfig)

    def spm_maker(self) -> MakeSPM:
        """SPMs with the authors' predictors: two layers with a bias of 1."""

        def make_spm(in_channels: int, out_channels: int, config: SPMConfig) -> SPM:
            reduction = self.config.reduction_for(out_channels)
            own = replace(config, bias=1.0, reduction=reduction, standardize=self.config.standardize)
            saliency = predicted_saliency(in_channels, out_channels, own)
            return SPM(saliency, AboveZero(), most=config.most, group=gcd(out_channels, config.group))

        return make_spm

    def train(self, gated: GatedNetwork, task: Task) -> Iterator[Stage]:
        """Trains network and predictors for all epochs, while the density falls; then sets the thresholds."""
        kept, config = gated.kept_for(task.budget), task.config
        epochs = epochs_in_parts(task, 1)[0]
        optimizers = joint_optimizers(gated, config, max(1, epochs * steps_in(task.loader)))
        features = PooledFeatures(gated)
        term = ManifoldTerm(gated, features, kept, self.config)
        around: Callable[[], AbstractContextManager[None]] = features.collecting
        yield stage_with_term("joint", gated, task, epochs, optimizers, term, around=around)
        finish_thresholds(gated, task, kept)


def finish_thresholds(gated: GatedNetwork, task: Task, kept: float) -> None:
    """After the last step: estimates the batch norm statistics, and finds the density that meets the budget.

    ``kept`` is the budget as a share of the dense FLOPs; it is met on some training images, with their mean saliencies.
    """
    finish_norms(gated, task)
    format = Format(gated, task.config.precision, exact=True)
    batches = first_images(task.loader, FINISH_IMAGES, format)
    with format.autocast(), torch.no_grad(), evaluating(gated):
        with record(gated) as gates:
            gated(batches[0])
        means = {module_path(name): each.float().relu().mean(0) for name, each in saliencies_of(gates).items()}

        def kept_at(density: float) -> float:
            for name, mean in means.items():
                gated.layers[name].spm.level = threshold_at(mean, density)
            return kept_on(gated, batches)

        kept_at(find_level(kept_at, kept, 1.0, 0.0, steps=14))
    same_everywhere(gated)
