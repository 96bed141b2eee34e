"""λ, the weight of the cost loss, follows the gap to the budget (paper 3.4, eq. 12): plain numbers, no tensors."""

from dataclasses import dataclass

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """How λ follows the gap between the running cost and the target, both as shares of the dense cost."""

    strength: float = 100.0
    """λ0: the weight at a gap of the whole network (paper: 0.01)"""
    lowest: float = -2.0
    """λ is not let below this; a large negative weight throws channels open all at once"""
    highest: float = 4.0
    """λ is not let above this; an unbounded one drowns the task"""
    memory: float = 0.7
    """how much of the running cost is kept at each step"""
    anneal: float = 0.5
    """the target falls from 1 to the budget over this share of the steps"""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.strength > 0:
            raise SanpError(f"strength {self.strength} must be above 0: it is the weight of the cost loss")
        if not self.lowest <= 0 <= self.highest:
            raise SanpError(
                f"λ must be able to be 0: lowest {self.lowest} <= 0 <= highest {self.highest} does not hold"
            )
        if not 0 <= self.memory < 1:
            raise SanpError(f"memory {self.memory} must be in [0, 1): it is the share of the running cost that is kept")
        if not 0 <= self.anneal <= 1:
            raise SanpError(f"anneal {self.anneal} must be in [0, 1]: it is a share of the steps")


class BudgetController:
    """Eq. 12 with a running mean: λ = λ0 (p_t - p), p_t and p as shares of the dense cost, clipped."""

    def __init__(self, target: float, config: ControllerConfig) -> None:
        self.target = target
        self.config = config
        self.running_cost: float | None = None
        self.cost_weight = 0.0

    def target_at(self, progress: float) -> float:
        """The target after this share of the steps: from 1 down to the budget, then the budget."""
        if self.config.anneal == 0:
            return self.target
        return 1 - (1 - self.target) * min(1.0, progress / self.config.anneal)

    def update(self, cost: float, progress: float = 1.0) -> float:
        """Takes the cost of one step (a share), gives the λ for it."""
        keep = self.config.memory
        self.running_cost = cost if self.running_cost is None else keep * self.running_cost + (1 - keep) * cost
        gap = self.running_cost - self.target_at(progress)
        self.cost_weight = min(self.config.highest, max(self.config.lowest, self.config.strength * gap))
        return self.cost_weight

    def state(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        return {"running_cost": self.running_cost, "cost_weight": self.cost_weight}

    def restore(self, state: dict[str, float | None]) -> None:
        """Goes on where :meth:`state` was taken."""
        self.running_cost = state["running_cost"]
        self.cost_weight = state["cost_weight"] or 0.0
