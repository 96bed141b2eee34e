"""The gated network: a stranger's network with gates in it, what they cost, and the dial that moves them."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.errors import SanpError
from sanp.core.modules import tensors_in
from sanp.gating.amount import Amount, LatencyTable, parse_budget
from sanp.gating.cost import CostModel
from sanp.gating.flops import human, predictor_flops
from sanp.gating.thresholds import move_thresholds
from sanp.spm.gated_conv import FollowingConv, GatedConv, ScaleAfterNorm
from sanp.spm.module import SPMConfig, closing_rate
from sanp.spm.recording import forward_of, keep_for_backward
from sanp.tracing.topology import Topology, module_path


@dataclass(frozen=True)
class Origin:
    """How a network was gated: what a file keeps, to gate a fresh one in the same way."""

    spm: SPMConfig
    skip: tuple[str, ...]
    shortcuts: bool
    input_shapes: tuple[tuple[int, ...], ...]
    """empty if the example held more than tensors: then a file cannot be loaded without an example"""
    input_keys: tuple[str, ...] | None
    """keyword names if the example was a dict, None for positional arguments"""
    method: str = "sanp"
    """whose SPMs these are (sanp.methods.METHODS)"""


class GatedNetwork(nn.Module):
    """A copy of a network whose convolutions are gated; called like the original."""

    def __init__(self, net: nn.Module, topology: Topology, skipped: dict[str, str], origin: Origin) -> None:
        super().__init__()
        self.net = net
        self.training = net.training
        self.cost = CostModel(topology)
        self.skipped = skipped
        """convolutions left dense, with the reason"""
        self.origin = origin
        self.budget: Amount | None = None
        """what it was last trained or set for"""
        self.latency: LatencyTable | None = None
        """what a share takes on this machine, for budgets that are times (sanp.engine.latency_table)"""
        gated = (module for module in net.modules() if isinstance(module, GatedConv | FollowingConv))
        self._norms_outside = any(module.norm_outside for module in gated)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The network's own forward, its gates recorded for whoever listens."""
        with forward_of(self), ScaleAfterNorm() if self._norms_outside else nullcontext():
            result = self.net(*args, **kwargs)
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                keep_for_backward(tensors_in(result))
            return result

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
        """FLOPs of one image that the SPMs add."""
        layers = self.layers
        return sum(
            predictor_flops(layer.in_positions, layer.in_channels, layers[module_path(name)].spm.flops)
            for name, layer in self.cost.gates.items()
        )

    def spm_parameters(self) -> list[nn.Parameter]:
        """The parameters of all SPMs."""
        return [parameter for layer in self.layers.values() for parameter in layer.spm.parameters()]

    def backbone_parameters(self) -> list[nn.Parameter]:
        """All parameters but the SPMs'."""
        own = {id(parameter) for parameter in self.spm_parameters()}
        return [parameter for parameter in self.net.parameters() if id(parameter) not in own]

    def parameter_groups(self, lr: float, steps: int) -> list[dict[str, Any]]:
        """What an optimiser of Adam's kind takes for a training loop of so many steps: the network at ``lr``, the SPMs
        at a rate that can close a channel in that time."""
        return [
            {"params": self.backbone_parameters(), "lr": lr},
            {"params": self.spm_parameters(), "lr": max(lr, closing_rate(steps)), "weight_decay": 0.0},
        ]

    def share(self, budget: object) -> float:
        """A budget as a share of the dense FLOPs; one that this network cannot reach is an error."""
        amount = parse_budget(budget)
        share = amount.share_of(self.dense_flops, self.latency)
        floor = self.cost.floor_flops / self.dense_flops
        if share < floor:
            raise SanpError(
                f"a budget of {budget} is {share:.3%} of {human(self.dense_flops)} FLOPs, and one open channel in each "
                f"gated layer already costs {floor:.3%} ({human(self.cost.floor_flops)}): give at least that"
            )
        if share > 1:
            raise SanpError(
                f"a budget of {budget} is more than the dense {human(self.dense_flops)} FLOPs: nothing to prune"
            )
        return share

    def set_budget(self, budget: object, images: Tensor | Iterable[Any]) -> float:
        """Moves the decision thresholds until the mean cost on these images is the budget; gives the share reached.

        ``images`` is a tensor or batches of one (labels beside them are ignored); for a network of several inputs,
        batches that are tuples of them, or dictionaries of keywords. An untrained network is first given
        random saliencies, so that the wanted density can be had for a benchmark.
        """
        share = self.share(budget)
        reached = move_thresholds(self, share, images)
        self.budget = parse_budget(budget)
        return reached

    def __repr__(self) -> str:
        from sanp.gating.describe import table  # rich is loaded only to print

        return table(self)
