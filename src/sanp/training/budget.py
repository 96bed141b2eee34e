"""The cost loss of multi-task training (paper 3.4, eq. 9): λ times a penalty on the gates; λ follows the budget."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from weakref import ref

from torch import Tensor, nn

from sanp.core import distributed
from sanp.core.batch_slice import own_slice
from sanp.core.checks import check_fields, check_kind
from sanp.core.errors import BudgetWarning, SanpError, unknown_name
from sanp.core.modules import unwrapped
from sanp.gating.amount import parse_budget
from sanp.gating.budget_range import parse_range
from sanp.gating.flops import human
from sanp.gating.network import GatedNetwork
from sanp.gating.trained_budgets import TrainedBudgets
from sanp.spm.recording import Gates, decisions_of, drawn_of, saliencies_of, watch_training
from sanp.training.controller import BudgetController, ControllerConfig
from sanp.training.penalties import PENALTIES, Saliencies, flops_penalty, runaway_penalty
from sanp.training.range_training import RangeTraining


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """Settings of the cost loss."""

    penalty: Literal["saliency", "positive", "gates", "flops"] = "flops"
    """what λ weighs; saliency: mean |s| (paper), positive: mean max(s, 0), gates: soft gates, flops: their FLOPs"""
    reopen: bool = True
    """use the flops penalty while fewer FLOPs than the target are computed, since it can open closed channels"""
    runaway: float = 1.0
    """weight of the penalty on saliencies outside [-1, 3]; 0: no such penalty"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.penalty not in PENALTIES:
            raise unknown_name("penalty", self.penalty, PENALTIES)
        if self.runaway < 0:
            raise SanpError(f"runaway {self.runaway} must not be negative: it is the weight of a penalty")


MOST_UNPAID = 10
"""forwards in training after which a budget that was never asked for a loss says so"""


class Budget:
    """The cost loss for a training loop of one's own: after each forward, add ``loss(gates)`` to the task's loss.

    ``network`` is what ``sanp.gate`` returned, or a wrapper of it. ``budget`` is a share, a count of multiply-adds or,
    with a latency table, a time; or a range of them (``"20%..60%"``), of which every step gets one: the thresholds are
    set for it, and ``gated.set_budget("20%..60%", images)`` after training makes the dial. ``objective`` holds the
    settings of the penalty, ``controller`` those of λ. ``steps`` is the number of steps to come: the target then falls
    from all FLOPs to the budget over the first part of them. Without ``steps`` the target is the budget from the start.
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
        self.config = objective or ObjectiveConfig()
        self.steps = steps
        self.step = 0
        self._cost = bare.cost
        self._latest: ref[Gates] | None = None
        self._unpaid = 0
        """forwards in training since the last call of :meth:`loss`"""
        self._told = False
        watch_training(bare, self._forward_seen)
        wanted, settings = parse_range(budget), controller or ControllerConfig()
        self.range = None
        """the training for a range of budgets; None for a single one"""
        if wanted is None:
            self.controller = BudgetController(bare.kept_for(budget), settings)
            bare.budget, bare.dial = parse_budget(budget), None
            bare.trained = TrainedBudgets(self.goal, self.goal)
        else:
            ends = wanted.kept(bare.cost, bare.latency)
            self.controller = BudgetController(ends[0], settings)
            self.range = RangeTraining(bare, *ends, self.controller, steps)
            bare.budget, bare.dial, bare.trained = wanted.low, None, TrainedBudgets(*ends)

    @property
    def goal(self) -> float:
        """The budget, or the smallest one of a range, as a share of the dense FLOPs."""
        return self.controller.target

    def aim(self, network: GatedNetwork, kept: float) -> None:
        """Changes the budget of the ``network`` to the share ``kept`` of the dense FLOPs; not for a range."""
        self.controller.target = kept
        network.trained = TrainedBudgets(kept, kept)

    @property
    def target(self) -> float:
        """The target of the last step, as a share of the dense FLOPs; it falls to the goal."""
        if self.range is not None:
            return self.range.target_at(max(0, self.step - 1))
        return self.controller.target_at(self._progress(max(0, self.step - 1)))

    @property
    def running_kept(self) -> float | None:
        """p_t: the share of the dense FLOPs that is computed, as a running mean; None before the first step."""
        return self.controller.running_kept

    @property
    def cost_weight(self) -> float:
        """λ of the last step."""
        return self.controller.cost_weight

    def loss(self, gates: Mapping[str, Gates]) -> Tensor:
        """The cost loss of one step: λ times the penalty. Each call updates λ and counts as a step.

        ``gates`` is what ``sanp.record`` recorded of the forward. A second call for the same forward is an error, and
        a forward in training for which there was no call gives a warning.
        """
        check_kind("gates", gates, Mapping, "what `with sanp.record(gated) as gates` gave")
        if not gates:
            raise SanpError("no gates were recorded: run the gated network inside `with sanp.record(gated) as gates`")
        self._note_call(next(iter(gates.values())))
        chosen = drawn_of if self.controller.config.estimate == "drawn" else decisions_of
        flops = _mean_over_ranks(self._cost.per_sample(chosen(gates)).mean())
        saliencies, kept = saliencies_of(gates), flops / self._cost.dense_flops
        if self.range is None:
            weight = self.controller.update(kept, self._progress(self.step))
            loss = self._penalty(weight, saliencies, saliencies)
        else:
            scores, bounded = (_lowered(saliencies, by) for by in (self.range.threshold, self.range.top))
            loss = self._penalty(self.range.weight(kept, self.step), scores, bounded)
            self.range.advance(gates, self.step + 1)
        self.step += 1
        return loss

    def _penalty(self, weight: float, scores: Saliencies, bounded: Saliencies) -> Tensor:
        """λ times the penalty on the scores, and the penalty that keeps saliencies from running away."""
        reopen = weight < 0 and self.config.reopen
        penalty = flops_penalty if reopen else PENALTIES[self.config.penalty]
        loss = weight * penalty(scores, self._cost)
        if self.config.runaway:
            loss = loss + self.config.runaway * runaway_penalty(bounded, self._cost)
        return loss

    def state(self) -> dict[str, float | None]:
        """The state that a checkpoint keeps."""
        return {"step": self.step, **(self.controller if self.range is None else self.range).state()}

    def restore(self, state: dict[str, float | None]) -> None:
        """Restores a state that :meth:`state` returned."""
        self.step = int(state["step"] or 0)
        (self.controller if self.range is None else self.range).restore(state)

    def _note_call(self, first: Gates) -> None:
        """Refuses a second loss of the forward that decided ``first``, and warns of forwards without a loss."""
        if self._latest is not None and self._latest() is first:
            raise SanpError(
                "budget.loss was called twice for one forward, which would move λ twice: keep what the first call gave"
            )
        if self._unpaid > 1 and self._latest is not None:
            self._tell(
                f"{self._unpaid} forwards in training since the last budget.loss: the cost of only the last of them is "
                "counted. Call budget.loss after each forward, and run others under torch.no_grad() or in eval mode"
            )
        self._latest, self._unpaid = ref(first), 0

    def _forward_seen(self) -> None:
        """Is called after each forward of the network in training."""
        self._unpaid += 1
        if self._unpaid >= MOST_UNPAID:
            self._tell(
                f"the network ran {self._unpaid} times in training without a call of budget.loss, so nothing makes it "
                "cheaper: add budget.loss(gates) to the loss of each step"
            )

    def _tell(self, what: str) -> None:
        """Warns once."""
        if not self._told:
            self._told = True
            warnings.warn(what, BudgetWarning, stacklevel=2)

    def __repr__(self) -> str:
        steps = "" if self.steps is None else f" of {self.steps}"
        now = "" if self.running_kept is None else f", now {self.running_kept:.1%}, λ {self.cost_weight:+.3g}"
        dense = human(self._cost.dense_flops)
        return f"Budget({self.goal:.1%} of {dense} FLOPs; step {self.step}{steps}: target {self.target:.1%}{now})"

    def _progress(self, step: int) -> float:
        return 1.0 if self.steps is None else step / self.steps


def _lowered(saliencies: Saliencies, by: float) -> Saliencies:
    """The saliencies minus a number."""
    return {name: s - by for name, s in saliencies.items()} if by else saliencies


def _mean_over_ranks(flops: Tensor) -> float:
    """The mean FLOPs over the samples of all processes, so that λ is the same on each."""
    own = own_slice()
    share = 1 / distributed.world() if own is None else own.share
    return distributed.weighted_mean([float(flops)], share)[0]
