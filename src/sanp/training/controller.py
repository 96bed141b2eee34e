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
    """Eq. 12 with a running mean: λ = λ0 (p_t - p), p_t and p as shares of the dense FLOPs, clipped."""

    def __init__(self, target: float, config: ControllerConfig) -> None:
        self.target = target
        self.config = config
        self.running_kept: float | None = None
        self.cost_weight = 0.0

    def target_at(self, progress: float) -> float:
        """The target after this share of the steps: from 1 down to the budget, then the budget."""
        if self.config.anneal == 0:
            return self.target
        return 1 - (1 - self.target) * min(1.0, progress / self.config.anneal)

    def update(self, kept: float, progress: float = 1.0) -> float:
        """Takes the share of the dense FLOPs that one step computed, gives the λ for it."""
        memory = self.config.memory
        self.running_kept = kept if self.running_kept is None else memory * self.running_kept + (1 - memory) * kept
        gap = self.running_kept - self.target_at(progress)
        self.cost_weight = min(self.config.highest, max(self.config.lowest, self.config.strength * gap))
        return self.cost_weight

    def state(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        return {"running_cost": self.running_kept, "cost_weight": self.cost_weight}

    def restore(self, state: dict[str, float | None]) -> None:
        """Goes on where :meth:`state` was taken."""
        self.running_kept = state["running_cost"]
        self.cost_weight = state["cost_weight"] or 0.0


class IntegralController:
    """One number that rises while more is computed than the falling target wants, and falls while less is."""

    def __init__(
        self, controller: BudgetController, steps: int, *, gain: float, start: float, lowest: float, highest: float
    ) -> None:
        self.controller, self.steps = controller, steps
        self.gain, self.lowest, self.highest = gain, lowest, highest
        self.step = 0
        self.level = start

    @property
    def target(self) -> float:
        """The share of the dense FLOPs that a step should compute now."""
        return self.controller.target_at(self.step / self.steps)

    @property
    def running_kept(self) -> float | None:
        """The running mean of the share that was computed."""
        return self.controller.running_kept

    def update(self, kept: float) -> None:
        """Takes the share that one step computed."""
        self.controller.update(kept, self.step / self.steps)
        self.level = min(self.highest, max(self.lowest, self.level + self.gain * (kept - self.target)))
        self.step += 1

    def state(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        return {"step": self.step, "now": self.level, **self.controller.state()}

    def restore(self, state: dict[str, float | None]) -> None:
        """Goes on where :meth:`state` was taken."""
        self.step, self.level = int(state["step"] or 0), float(state["now"] or 0.0)
        self.controller.restore(state)
