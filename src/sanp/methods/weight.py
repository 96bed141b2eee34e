"""Weight pruning (Han et al., 2015): sets weights below q times their layer's deviation to zero, retrains, repeats.

The pruning is unstructured. FLOPs are counted as multiply-adds with non-zero weights: HW (non-zero weights + outputs
that have any). A dense engine does not become faster by it. q is the same in all layers, and set so that the FLOPs meet
the budget.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.bisection import find_level
from sanp.core.checks import check_fields
from sanp.core.errors import SanpError
from sanp.gating.accounting import FixedCost, mean_kept
from sanp.gating.cost import CostModel
from sanp.gating.count import ungated_cost
from sanp.methods.parts.retrain import check_reach, epochs_in_parts, kept_of, plain_stage
from sanp.training.finish import finish_norms
from sanp.training.stage import Stages
from sanp.training.task import Task, with_teacher


@dataclass(frozen=True, kw_only=True)
class WeightConfig:
    """Settings of weight pruning."""

    rounds: int = 3
    """how often weights are dropped and the others retrained; each round has the same share of the epochs"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rounds < 1:
            raise SanpError(f"rounds {self.rounds} must be at least 1")


class SparseNetwork(nn.Module):
    """A network whose convolution weights stay zero once they are zero: then they get no gradient.

    ``net`` is the network itself, not a copy; ``example`` is an input for it.
    """

    def __init__(self, net: nn.Module, example: Tensor) -> None:
        super().__init__()
        self.net = net
        self.method = "weight"
        self.input_shape = tuple(example.shape)
        self.dense: CostModel = ungated_cost(net, example)
        paths = dict.fromkeys(layer.path for layer in self.dense.layers)
        found = {path: net.get_submodule(path)._parameters.get("weight") for path in paths}
        self.weights = {path: weight for path, weight in found.items() if weight is not None and weight.dim() > 2}
        for weight in self.weights.values():
            weight.register_hook(_where_not_zero(weight))
        self.training = net.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The forward of the network."""
        return self.net(*args, **kwargs)

    @property
    def overhead_flops(self) -> int:
        """0, since there are no decisions."""
        return 0

    @property
    def cost(self) -> FixedCost:
        """Counts the multiply-adds with non-zero weights."""
        return self.cost_with({path: weight != 0 for path, weight in self.weights.items()})

    def cost_with(self, left: Mapping[str, Tensor]) -> FixedCost:
        """The count if only the weights in ``left`` were not zero: path of a layer to a boolean mask of its weights."""
        live = {path: mask.flatten(1).sum(1) for path, mask in left.items()}  # (C_out,)
        own = {layer.name: live.get(layer.path) for layer in self.dense.layers}
        positions = {layer.name: layer.positions for layer in self.dense.layers}
        flops = {name: nonzero_flops(positions[name], count) for name, count in own.items() if count is not None}
        opened = {name: (count > 0).cpu().double() for name, count in own.items() if count is not None}
        return FixedCost(self.dense, flops, opened)

    @property
    def least(self) -> float:
        """The share of the dense FLOPs with one weight left in every layer."""
        one = {path: torch.zeros_like(weight, dtype=torch.bool) for path, weight in self.weights.items()}
        for mask in one.values():
            mask[(0,) * mask.dim()] = True
        return mean_kept(self.cost_with(one), {})

    @torch.no_grad()
    def drop(self, kept: float) -> None:
        """Sets the smallest weights to zero, so that the share ``kept`` of the dense FLOPs is left.

        These are the weights below q times the deviation of their layer's non-zero weights, with one q for all layers.
        """
        sizes = {path: weight.abs() / weight[weight != 0].std() for path, weight in self.weights.items()}
        tops = {path: 0.999 * float(size.max()) for path, size in sizes.items()}  # every layer keeps its largest weight

        def left_at(q: float) -> dict[str, Tensor]:
            return {path: size > min(q, tops[path]) for path, size in sizes.items()}

        def share_at(q: float) -> float:
            return mean_kept(self.cost_with(left_at(q)), {})

        for path, left in left_at(find_level(share_at, kept, 0.0, max(tops.values()))).items():
            self.weights[path].mul_(left)


def nonzero_flops(positions: int, live: Tensor) -> float:
    """HW Σ (non-zero weights of an output + 1 for its bias), over the outputs that have non-zero weights.

    ``positions`` is HW, ``live`` the number of non-zero weights of each output (C_out,).
    """
    return float(positions * (live.sum() + (live > 0).sum()))


def _where_not_zero(weight: Tensor) -> Any:
    return lambda gradient: gradient * (weight.detach() != 0)


@dataclass(frozen=True, kw_only=True)
class Weight:
    """Weight pruning as a method."""

    name: str = "weight"
    layer_adaptive: bool = True
    sample_adaptive: bool = False
    simplified: str = ""
    config: WeightConfig = field(default_factory=WeightConfig)

    def stages(self, net: nn.Module, task: Task) -> Stages:
        """Drops weights and retrains, in rounds; each round lowers the share of the FLOPs by the same factor."""
        sparse = SparseNetwork(copy.deepcopy(net), task.example(net))
        kept = self._kept(sparse, task)
        task = with_teacher(task, net)
        rounds = self.config.rounds
        for number, epochs in enumerate(epochs_in_parts(task, *(1,) * rounds)):
            sparse.drop(kept ** ((number + 1) / rounds))
            if epochs:  # each stage has a new optimizer, so that no momentum moves a dropped weight
                yield plain_stage(f"retrain {number + 1}", sparse, task, epochs)
        finish_norms(sparse, task)
        return sparse

    def check(self, net: nn.Module, task: Task) -> None:
        """An error if one weight in each layer already exceeds the budget."""
        self._kept(SparseNetwork(copy.deepcopy(net), task.example(net)), task)

    def _kept(self, sparse: SparseNetwork, task: Task) -> float:
        kept = kept_of(task, sparse.dense.dense_flops)
        check_reach(sparse.least, kept, self.name)
        return kept
