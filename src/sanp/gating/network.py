"""The gated network: a network with SPMs in it, its cost model, and thresholds that can be calibrated to a budget."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sanp.core.modules import tensors_in
from sanp.gating.amount import Amount, LatencyTable, parse_budget
from sanp.gating.budget_range import parse_range
from sanp.gating.cap import Cap, check_cap, make_cap, uniform_use, usual_channels
from sanp.gating.cost import CostModel, kept_for
from sanp.gating.dial import Dial, set_level
from sanp.gating.flops import predictor_flops
from sanp.gating.thresholds import batches_of, calibrate_dial, calibrate_thresholds, images_given, kept_evaluating
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
        self.cap: Cap | None = None
        """what no image may cost more than in evaluation, if :meth:`set_max_flops` has set it"""
        self.latency: LatencyTable | None = None
        """measured times of an image on this machine, needed for budgets that are times (sanp.engine.latency_table)"""
        gated = (module for module in net.modules() if isinstance(module, GatedConv | FollowingConv))
        self._norms_outside = any(module.norm_outside for module in gated)
        self._norms_frozen = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The forward of the original network, with gates; :func:`sanp.record` can record them."""
        with (
            forward_of(self, None if self.training else self.cap),
            ScaleAfterNorm() if self._norms_outside else nullcontext(),
        ):
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

    def set_budget(
        self,
        budget: object,
        images: Tensor | Iterable[Any] | None = None,
        *,
        max_flops: object = None,
        force: bool = False,
    ) -> float:
        """Sets the thresholds for a budget.

        ``budget`` is a share (``0.35``, ``"35%"``), a count of multiply-adds (``"60M"``) or, with a latency table, a
        time (``"2.5ms"``). A network that was trained for a range of budgets takes any budget of the range at once and
        without ``images``. Otherwise the thresholds are calibrated so that the mean FLOPs of the images meet the
        budget. ``images`` is a tensor, or batches of tensors (labels beside them are ignored); for a network of
        several inputs, batches that are tuples of them or dicts of keyword arguments.

        ``max_flops``, a share or a count, caps each image too, see :meth:`set_max_flops`. If it is not given, a cap
        that was set before stays. Thresholds are those of the budget without the cap, which only closes channels: with
        it the mean may lie below the budget.

        A budget above what the network was trained for is an error, and one below a warning; ``force`` sets it all the
        same, without a word. A trained network whose thresholds miss the budget by more than a hundredth of the FLOPs
        says so in any case.

        A range (``"20%..60%"``) with images makes the dial of a network that was trained for it, and sets the smallest
        budget.

        Returns the share of the dense FLOPs that was reached: on these images, or as the dial has it. An untrained
        network first gets random saliencies, since otherwise all its channels would open and close together.
        """
        trained = None if force else self.trained
        wanted = parse_range(budget)
        ends = (self.kept_for(budget),) if wanted is None else wanted.kept(self.cost, self.latency)
        cap = max_flops if max_flops is not None else None if self.cap is None else self.cap.amount
        if cap is not None:
            check_cap(cap, self.cost, ends[-1])
        batches = None if images is None else batches_of(images, max(1, len(self.origin.input_shapes)))
        dialled = wanted is None and self.dial is not None and self.dial.covers(ends[0])
        if trained is not None and not dialled:
            for kept in reversed(ends):
                trained.check(kept)
        with self.uncapped():
            reached = self._set_thresholds(ends, batches, dialled)
        if self.trained is not None and wanted is None and not dialled:
            check_reached(reached, ends[0])
        self.budget = parse_budget(budget) if wanted is None else wanted.low
        if max_flops is not None:
            self.set_max_flops(max_flops, batches)
        return reached if self.cap is None or batches is None else kept_evaluating(self, batches)

    def _set_thresholds(self, ends: tuple[float, ...], batches: list[Any] | None, dialled: bool) -> float:
        """Sets the thresholds for a share of the dense FLOPs, or the dial for a range; returns the share reached."""
        if len(ends) == 2:
            self.dial = calibrate_dial(self, *ends, images_given(batches))
            self.freeze_norms(False)
            return self.dial.low
        if dialled and self.dial is not None:
            set_level(self, self.dial.threshold(ends[0]))
            return min(self.dial.high, max(self.dial.low, ends[0]))
        return calibrate_thresholds(self, ends[0], images_given(batches), compiled=True)

    def set_max_flops(self, max_flops: object, images: Tensor | Iterable[Any] | None = None) -> None:
        """Sets what no image may cost more than, whatever its gates would open; holds in evaluation, and in files.

        ``max_flops`` is a share of the dense FLOPs (``0.4``, ``"40%"``) or a count (``"60M"``); None takes the cap
        away. Where an image would exceed it, its least salient channels stay closed, layer by layer, so that the cost
        of the image as the network counts it is never above the cap. ``images`` (a few dozen) show how many channels
        each layer usually opens; the cap is divided among the layers in these proportions. Without them, those of the
        cap before, or else all layers alike.
        """
        if max_flops is None:
            self.cap = None
            return
        if images is not None:
            with self.uncapped():
                usual = usual_channels(self, batches_of(images, max(1, len(self.origin.input_shapes))))
        else:
            usual = uniform_use(self) if self.cap is None else {k: float(v) for k, v in self.cap.reserve.items()}
        self.cap = make_cap(self, max_flops, usual)

    @contextmanager
    def uncapped(self) -> Iterator[None]:
        """Inside, nothing caps what an image costs."""
        cap, self.cap = self.cap, None
        try:
            yield
        finally:
            self.cap = cap

    def zero_unused(self, images: Tensor | Iterable[Any], *, rarely: float = 0.0) -> float:
        """Closes the channels that none of ``images`` opens for good and sets their weights to zero, which makes the
        network's files smaller; with ``rarely``, also those that no more than this share of the images opens. See
        :func:`sanp.gating.unused.zero_unused`. Returns the share of weights that is zero.
        """
        return zero_unused(self, images, rarely=rarely)

    def __repr__(self) -> str:
        from sanp.gating.describe import table  # rich is loaded only to print

        return table(self)
