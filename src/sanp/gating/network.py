"""The gated network: a network with SPMs in it, its cost model, and thresholds that can be calibrated to a budget."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.core.modules import tensors_in
from sanp.gating.amount import Amount, LatencyTable, parse_budget
from sanp.gating.budget_range import parse_range
from sanp.gating.cost import CostModel, kept_for
from sanp.gating.dial import Dial, set_thresholds
from sanp.gating.flops import predictor_flops
from sanp.gating.thresholds import calibrate_dial, calibrate_thresholds, images_given
from sanp.gating.trained_budgets import TrainedBudgets, check_reached
from sanp.gating.unused import zero_unused
from sanp.spm.gated_conv import FollowingConv, GatedConv
from sanp.spm.module import SPMConfig, closing_rate
from sanp.spm.outside_norm import ScaleAfterNorm
from sanp.spm.recording import forward_of, keep_for_backward
from sanp.spm.saliency import Standardize
from sanp.tracing.topology import Topology, module_path


@dataclass(frozen=True)
class Origin:
    """How a network was gated; saved files hold it, so that a fresh network can be gated in the same way."""

    spm: SPMConfig
    skip: tuple[str, ...]
    shortcuts: bool
    input_shapes: tuple[tuple[int, ...], ...]
    """of the example; empty if it held more than tensors of floats: loading a file then needs an example"""
    input_keys: tuple[str, ...] | None
    """keyword names if the example was a dict, None for positional arguments"""
    method: str = "sanp"
    """the method that the SPMs belong to, a name in sanp.methods.METHODS"""


class GatedNetwork(nn.Module):
    """A copy of a network whose convolutions are gated; called like the original. :func:`sanp.gate` makes it.

    ``net`` is the network with SPMs in it, ``topology`` says which gates each layer depends on, ``skipped`` maps the
    names of dense convolutions to the reason, and ``origin`` says how the network was gated.
    """

    def __init__(self, net: nn.Module, topology: Topology, skipped: dict[str, str], origin: Origin) -> None:
        super().__init__()
        self.net = net
        self.training = net.training
        self.cost = CostModel(topology)
        self.skipped = skipped
        """names of the convolutions that stay dense, with the reason"""
        self.origin = origin
        self.budget: Amount | None = None
        """the budget that it was last trained for or calibrated to"""
        self.trained: TrainedBudgets | None = None
        """the budgets that it was trained for; None for a network that was not trained with a budget"""
        self.dial: Dial | None = None
        """the thresholds of every budget of a range, if it was trained for one"""
        self.latency: LatencyTable | None = None
        """measured times of an image on this machine, needed for budgets that are times (sanp.engine.latency_table)"""
        gated = (module for module in net.modules() if isinstance(module, GatedConv | FollowingConv))
        self._norms_outside = any(module.norm_outside for module in gated)
        self._norms_frozen = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The forward of the original network, with gates; :func:`sanp.record` can record them."""
        with forward_of(self), ScaleAfterNorm() if self._norms_outside else nullcontext():
            result = self.net(*args, **kwargs)
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                keep_for_backward(tensors_in(result))
            return result

    def train(self, mode: bool = True) -> "GatedNetwork":
        """Sets training or evaluation mode; frozen statistics stay as they are in both."""
        super().train(mode)
        if self._norms_frozen:
            for module in self.net.modules():
                if isinstance(module, _BatchNorm | Standardize):
                    module.eval()
        return self

    def freeze_norms(self, frozen: bool) -> None:
        """Keeps the statistics of batch norms and of descriptors as they are while training goes on, if ``frozen``."""
        self._norms_frozen = frozen
        self.train(self.training)

    @property
    def layers(self) -> dict[str, GatedConv]:
        """The gated convolutions by name."""
        return {module.name: module for module in self.net.modules() if isinstance(module, GatedConv)}

    @property
    def dense_flops(self) -> int:
        """FLOPs of one image with every channel computed."""
        return self.cost.dense_flops

    @property
    def overhead_flops(self) -> int:
        """FLOPs that the SPMs add for one image."""
        layers = self.layers
        return sum(
            predictor_flops(layer.in_positions, layer.in_channels, layers[module_path(name)].spm.flops)
            for name, layer in self.cost.gates.items()
        )

    def spm_parameters(self) -> list[nn.Parameter]:
        """The parameters of all SPMs."""
        return [parameter for layer in self.layers.values() for parameter in layer.spm.parameters()]

    def backbone_parameters(self) -> list[nn.Parameter]:
        """All parameters except those of the SPMs."""
        own = {id(parameter) for parameter in self.spm_parameters()}
        return [parameter for parameter in self.net.parameters() if id(parameter) not in own]

    def parameter_groups(self, lr: float, steps: int) -> list[dict[str, Any]]:
        """Parameter groups for Adam: the backbone at ``lr``, the SPMs at a rate that can close a channel in ``steps``.

        ``lr`` is the learning rate of the network's own parameters, ``steps`` the length of the training loop. The SPMs
        get at least ``lr``, and no weight decay.
        """
        return [
            {"params": self.backbone_parameters(), "lr": lr},
            {"params": self.spm_parameters(), "lr": max(lr, closing_rate(steps)), "weight_decay": 0.0},
        ]

    def kept_for(self, budget: object) -> float:
        """A budget as a share of the dense FLOPs; an error if this network cannot reach it.

        ``budget`` is a share (``0.35``, ``"35%"``), a count of multiply-adds (``"60M"``) or, with a latency table, a
        time (``"2.5ms"``).
        """
        return kept_for(budget, self.cost, self.latency)

    def set_budget(self, budget: object, images: Tensor | Iterable[Any] | None = None, *, force: bool = False) -> float:
        """Sets the thresholds for a budget.

        ``budget`` is a share (``0.35``, ``"35%"``), a count of multiply-adds (``"60M"``) or, with a latency table, a
        time (``"2.5ms"``). A network that was trained for a range of budgets takes any budget of the range at once and
        without ``images``. Otherwise the thresholds are calibrated so that the mean FLOPs of the images meet the
        budget. ``images`` is a tensor, or batches of tensors (labels beside them are ignored); for a network of
        several inputs, batches that are tuples of them or dicts of keyword arguments.

        A budget above what the network was trained for is an error, and one below a warning; ``force`` sets it all the
        same, without a word. A trained network whose thresholds miss the budget by more than a hundredth of the FLOPs
        says so too.

        A range (``"20%..60%"``) with images makes the dial of a network that was trained for it, and sets the smallest
        budget.

        Returns the share of the dense FLOPs that was reached: on these images, or as the dial has it. An untrained
        network first gets random saliencies, since otherwise all its channels would open and close together.
        """
        trained = None if force else self.trained
        wanted = parse_range(budget)
        if wanted is not None:
            ends = wanted.kept(self.cost, self.latency)
            if trained is not None:
                trained.check(ends[1])
                trained.check(ends[0])
            self.dial = calibrate_dial(self, *ends, images_given(images))
            self.freeze_norms(False)
            self.budget = wanted.low
            return self.dial.low
        kept = self.kept_for(budget)
        if self.dial is not None and self.dial.covers(kept):
            set_thresholds(self, self.dial.threshold(kept))
            reached = min(self.dial.high, max(self.dial.low, kept))
        else:
            if trained is not None:
                trained.check(kept)
            reached = calibrate_thresholds(self, kept, images_given(images))
            if trained is not None:
                check_reached(reached, kept)
        self.budget = parse_budget(budget)
        return reached

    def zero_unused(self, images: Tensor | Iterable[Any]) -> float:
        """Closes the channels that none of ``images`` opens for good and sets their weights to zero, which makes the
        network's files smaller; see :func:`sanp.gating.unused.zero_unused`. Returns the share of weights that is zero.
        """
        return zero_unused(self, images)

    def __repr__(self) -> str:
        from sanp.gating.describe import table  # rich is loaded only to print

        return table(self)
