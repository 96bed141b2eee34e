"""Controllers that follow the gap to the budget: λ, the weight of the cost loss (paper 3.4, eq. 10), and a level."""

from dataclasses import dataclass
from typing import Literal

from sanp.core.checks import check_fields
from sanp.core.errors import SanpError


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """How λ follows the gap between the share of the dense FLOPs that is computed and the target."""

    strength: float = 100.0
    """λ0: λ is this times the gap, which is a share of the dense FLOPs (paper: 0.01)"""
    lowest: float = -2.0
    """lower bound of λ; a large negative λ would open very many channels at once"""
    highest: float = 4.0
    """upper bound of λ; a very large λ would outweigh the task's loss"""
    memory: float = 0.7
    """weight of the past in the running mean of the computed share of the FLOPs; 0: only the last step counts"""
    estimate: Literal["decisions", "drawn"] = "decisions"
    """what p_t is computed from: the decisions without noise, or those that training drew with noise (paper)"""
    anneal: float = 0.5
    """share of the steps over which the target falls from all FLOPs to the budget; 0: it is the budget at once"""

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
    """Eq. 10, clipped: λ = λ0 (p_t - p), with p_t and p as shares of the dense FLOPs and p_t as a running mean.

    ``target`` is p, the share of the dense FLOPs that the budget leaves.
    """

    def __init__(self, target: float, config: ControllerConfig) -> None:
        self.target = target
        self.config = config
        self.running_kept: float | None = None
        self.cost_weight = 0.0

    def target_at(self, progress: float) -> float:
        """The target when the share ``progress`` of the steps is done: it falls from 1 to the budget, then stays."""
        if self.config.anneal == 0:
            return self.target
        return 1 - (1 - self.target) * min(1.0, progress / self.config.anneal)

    def update(self, kept: float, progress: float = 1.0) -> float:
        """Returns λ for a step that computed the share ``kept`` of the dense FLOPs.

        ``progress`` is the share of the steps that is done.
        """
        memory = self.config.memory
        self.running_kept = kept if self.running_kept is None else memory * self.running_kept + (1 - memory) * kept
        gap = self.running_kept - self.target_at(progress)
        self.cost_weight = min(self.config.highest, max(self.config.lowest, self.config.strength * gap))
        return self.cost_weight

    def state(self) -> dict[str, float | None]:
        """The state that a checkpoint keeps; "running_cost" is what files have always called it."""
        return {"running_cost": self.running_kept, "cost_weight": self.cost_weight}

    def restore(self, state: dict[str, float | None]) -> None:
        """Restores a state that :meth:`state` returned."""
        self.running_kept = state["running_cost"]
        self.cost_weight = state["cost_weight"] or 0.0


class IntegralController:
    """A level that rises while more FLOPs than the target are computed, and falls while fewer are.

    ``controller`` gives the target, and ``steps`` is the number of steps of the stage. ``gain`` is how far the level
    moves in one step for a gap of all dense FLOPs. The level begins at ``start`` and stays between ``lowest`` and
    ``highest``.
    """

    def __init__(
        self, controller: BudgetController, steps: int, *, gain: float, start: float, lowest: float, highest: float
    ) -> None:
        self.controller, self.steps = controller, steps
        self.gain, self.lowest, self.highest = gain, lowest, highest
        self.step = 0
        self.level = start

    @property
    def target(self) -> float:
        """The share of the dense FLOPs that the next step should compute."""
        return self.controller.target_at(self.step / self.steps)

    @property
    def running_kept(self) -> float | None:
        """The running mean of the share of the dense FLOPs that was computed; None before the first step."""
        return self.controller.running_kept

    def update(self, kept: float) -> None:
        """Moves the level after a step that computed the share ``kept`` of the dense FLOPs."""
        self.controller.update(kept, self.step / self.steps)
        self.level = min(self.highest, max(self.lowest, self.level + self.gain * (kept - self.target)))
        self.step += 1

    def state(self) -> dict[str, float | None]:
        """The state that a checkpoint keeps."""
        return {"step": self.step, "now": self.level, **self.controller.state()}

    def restore(self, state: dict[str, float | None]) -> None:
        """Restores a state that :meth:`state` returned."""
        self.step, self.level = int(state["step"] or 0), float(state["now"] or 0.0)
        self.controller.restore(state)
