"""The cost term of the multi-task loss (paper 3.4, eq. 11): λ times what the gates cost, λ following the budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from sanp.core import distributed
from sanp.core.batch_slice import own_slice
from sanp.core.checks import check_fields, check_kind
from sanp.core.errors import SanpError, unknown_name
from sanp.core.modules import unwrapped
from sanp.gating.amount import parse_budget
from sanp.gating.network import GatedNetwork
from sanp.spm.recording import Gates, decisions_of, saliencies_of
from sanp.training.controller import BudgetController, ControllerConfig
from sanp.training.penalties import PENALTIES, flops_penalty, runaway_penalty


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What the cost loss is made of."""

    penalty: Literal["saliency", "positive", "gates", "flops"] = "flops"
    """what λ multiplies: the paper's mean |s|, its positive part, the soft gates, or the FLOPs of steeper ones"""
    reopen: bool = True
    """while the cost is below the target, push by the FLOPs penalty, which can open closed channels"""
    runaway: float = 1.0
    """weight of the term that keeps saliencies between -1 and 3; 0 leaves it out"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.penalty not in PENALTIES:
            raise unknown_name("penalty", self.penalty, PENALTIES)
        if self.runaway < 0:
            raise SanpError(f"runaway {self.runaway} must not be negative: it is the weight of a penalty")


class Budget:
    """The cost term for a training loop of one's own: ``loss(gates)`` after each forward, added to the task's loss.

    ``network`` is what ``sanp.gate`` returned, or a wrapper of it; ``budget`` a share, a count of multiply-adds, or
    with a latency table a time. ``objective`` and ``controller`` are the settings of the penalty and of λ. With
    ``steps``, the number of steps to come, the target falls from the whole network to the budget over the first part of
    them; without, it is the budget from the start.
    """

    def __init__(
        self,
        network: nn.Module,
        budget: object,
        *,
        objective: ObjectiveConfig | None = None,
        controller: ControllerConfig | None = None,
        steps: int | None = None,
    ) -> None:
        bare = unwrapped(network)
        if not isinstance(bare, GatedNetwork):
            raise SanpError(f"{type(bare).__name__} is not gated: give Budget what sanp.gate returned")
        check_kind("objective", objective, ObjectiveConfig | None, "a sanp.ObjectiveConfig")
        check_kind("controller", controller, ControllerConfig | None, "a sanp.ControllerConfig")
        check_kind("steps", steps, int | None, "a whole number")
        if steps is not None and (isinstance(steps, bool) or steps < 1):
            raise SanpError(f"steps is {steps}: give the number of steps to come, at least 1")
        self.controller = BudgetController(bare.kept_for(budget), controller or ControllerConfig())
        bare.budget = parse_budget(budget)
        self.config = objective or ObjectiveConfig()
        self.steps = steps
        self.step = 0
        self._cost = bare.cost

    @property
    def goal(self) -> float:
        """The budget, as a share of the dense FLOPs."""
        return self.controller.target

    @property
    def target(self) -> float:
        """The target of the last step, as a share of the dense FLOPs: it falls to the goal."""
        return self.controller.target_at(self._progress(self.step - 1))

    @property
    def running_kept(self) -> float | None:
        """p_t: the running mean of the share of the dense FLOPs that is computed; None before the first step."""
        return self.controller.running_kept

    @property
    def cost_weight(self) -> float:
        """λ of the last step."""
        return self.controller.cost_weight

    def loss(self, gates: Mapping[str, Gates]) -> Tensor:
        """λ times the penalty of what was recorded; counts as one step."""
        check_kind("gates", gates, Mapping, "what `with sanp.record(gated) as gates` gave")
        if not gates:
            raise SanpError("no gates were recorded: run the gated network inside `with sanp.record(gated) as gates`")
        flops = _mean_over_ranks(self._cost.per_sample(decisions_of(gates)).mean())
        weight = self.controller.update(flops / self._cost.dense_flops, self._progress(self.step))
        self.step += 1
        saliencies = saliencies_of(gates)
        reopen = weight < 0 and self.config.reopen
        penalty = flops_penalty if reopen else PENALTIES[self.config.penalty]
        loss = weight * penalty(saliencies, self._cost)
        if self.config.runaway:
            loss = loss + self.config.runaway * runaway_penalty(saliencies, self._cost)
        return loss

    def state(self) -> dict[str, float | None]:
        """What a checkpoint keeps."""
        return {"step": self.step, **self.controller.state()}

    def restore(self, state: dict[str, float | None]) -> None:
        """Goes on where :meth:`state` was taken."""
        self.step = int(state["step"] or 0)
        self.controller.restore(state)

    def _progress(self, step: int) -> float:
        return 1.0 if self.steps is None else step / self.steps


def _mean_over_ranks(flops: Tensor) -> float:
    """The same number on every rank, so that λ is the same everywhere."""
    own = own_slice()
    share = 1 / distributed.world() if own is None else own.share
    return distributed.weighted_mean([float(flops)], share)[0]
