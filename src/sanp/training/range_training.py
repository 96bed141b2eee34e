"""Trains one network for a range of budgets: first for the smallest, then every step for another budget of the range.

Each budget has a threshold, common to all layers, that follows its own cost from step to step. At both ends of the
range λ closes or opens channels as well, so that saliencies spread over the thresholds in between. Batch norms keep the
statistics that they had at the smallest budget: then one set serves all budgets.
"""

import random
from collections.abc import Mapping

import numpy as np

from sanp.core.distributed import same_everywhere
from sanp.core.errors import SanpError
from sanp.gating.dial import set_level
from sanp.gating.network import GatedNetwork
from sanp.spm.recording import Gates
from sanp.training.controller import BudgetController
from sanp.training.optimizers import Schedule
from sanp.training.spreading import WIDTH, can_spread, spread

KNOTS = 9
"""budgets of the range whose thresholds are followed"""
FIRST = 0.5
"""share of the steps that an untrained network is trained for the smallest budget alone"""
NEAR = 0.03
"""the range begins when the cost is this close to the smallest budget"""
LOWEST, HIGHEST = 0.35, 0.25
"""shares of the steps at the smallest and at the largest budget; the others draw one between, small ones more often"""
SKEW = 1.5
"""how much more often small budgets are drawn; 1: all alike"""
FOLLOW, FOLLOW_END = 0.1, 0.02
"""how far a threshold moves in a step for a gap of all dense FLOPs; less at the ends, where λ acts as well"""

SLOW = 0.2
"""factor on the network's learning rate in the range, where frozen batch norms do not hold large steps back"""


class RangeTraining:
    """The state of training for a range of budgets, from step to step.

    ``network`` is trained for the shares ``low`` to ``high`` of the dense FLOPs. ``lowest`` is the controller of λ at
    the smallest budget; the largest has one with the same settings. ``steps`` is the number of steps to come, or None
    if it is not known.
    """

    def __init__(
        self, network: GatedNetwork, low: float, high: float, lowest: BudgetController, steps: int | None
    ) -> None:
        if not can_spread(network):
            raise SanpError(
                "a range of budgets needs gates that a threshold decides and saliencies with a bias: "
                f"{network.origin.method} with these settings has none; use sanp with spm.bias, or give one budget"
            )
        self.network = network
        self.low, self.high = low, high
        trained = network.budget is not None
        self.first = 0 if trained or steps is None else int(FIRST * steps)
        self._anneal = None if trained or steps is None else max(1, self.first)
        self._lowest, self._highest = lowest, BudgetController(high, lowest.config)
        self._knots = np.geomspace(low, high, KNOTS)
        self._thresholds: list[float] = []
        self.share = low
        """the budget of the present step"""

    @property
    def begun(self) -> bool:
        """Whether the smallest budget was reached, so that now every step has a budget of its own."""
        return bool(self._thresholds)

    @property
    def threshold(self) -> float:
        """The threshold of the present step, to which its saliencies are compared."""
        return self._threshold_of(self.share) if self.begun else 0.0

    @property
    def top(self) -> float:
        """What is taken off the saliencies before they are kept from running away."""
        return WIDTH if self.begun else 0.0

    @property
    def running_kept(self) -> float | None:
        """The running mean of the cost at the smallest budget."""
        return self._lowest.running_kept

    def target_at(self, step: int) -> float:
        """What the cost of this step should be, as a share of the dense FLOPs."""
        return self.share if self.begun else self._lowest.target_at(self._progress(step))

    def weight(self, kept: float, step: int) -> float:
        """λ of a step that computed the share ``kept`` of the dense FLOPs; thresholds follow the cost.

        ``step`` is its number, from 0.
        """
        if not self.begun:
            return self._lowest.update(kept, self._progress(step))
        self._follow(kept - self.share)
        if self.share == self.low:
            return self._lowest.update(kept)
        return self._highest.update(kept) if self.share == self.high else 0.0

    def advance(self, gates: Mapping[str, Gates], step: int) -> None:
        """Sets the thresholds for the budget of step ``step``; ``gates`` are those of the step before it."""
        kept = self.running_kept
        if not self.begun and kept is not None and step >= self.first and kept <= self.low + NEAR:
            spread(self.network, gates)
            same_everywhere(self.network)  # each process has seen its own part of the batch
            self.network.freeze_norms(True)
            self._thresholds = [float(level) for level in np.linspace(WIDTH, 0.0, KNOTS)]
        if self.begun:
            self.share = drawn_share(self.low, self.high, step)
            set_level(self.network, self.threshold)

    def slowed(self, schedule: Schedule) -> Schedule:
        """A schedule of the network's own learning rate that is lower once the range has begun."""

        def factor(progress: float, epoch: int) -> float:
            return schedule(progress, epoch) * (SLOW if self.begun else 1.0)

        return factor

    def _progress(self, step: int) -> float:
        return 1.0 if self._anneal is None else step / self._anneal

    def _threshold_of(self, share: float) -> float:
        return float(np.interp(share, self._knots, self._thresholds))

    def _follow(self, gap: float) -> None:
        """Moves the thresholds of the budgets beside the present one."""
        place = float(np.interp(self.share, self._knots, np.arange(KNOTS)))
        for knot in range(KNOTS):
            near = max(0.0, 1 - abs(place - knot))
            self._thresholds[knot] += near * gap * (FOLLOW_END if knot in (0, KNOTS - 1) else FOLLOW)
        self._thresholds[-1] = max(0.0, self._thresholds[-1])  # all open channels have a positive saliency
        for knot in range(KNOTS - 2, -1, -1):  # a smaller budget has a higher threshold
            self._thresholds[knot] = max(self._thresholds[knot], self._thresholds[knot + 1] + 1e-3)

    def state(self) -> dict[str, float | None]:
        """The state that a checkpoint keeps."""
        ends = {"lowest": self._lowest, "highest": self._highest}
        parts = {f"{end}_{name}": value for end, each in ends.items() for name, value in each.state().items()}
        levels = {f"threshold_{knot}": self._thresholds[knot] if self.begun else None for knot in range(KNOTS)}
        return {"share": self.share, **parts, **levels}

    def restore(self, state: Mapping[str, float | None]) -> None:
        """Restores a state that :meth:`state` returned."""
        share = float(state["share"] or self.low)
        levels = [float(level) for knot in range(KNOTS) if (level := state[f"threshold_{knot}"]) is not None]
        if len(levels) not in (0, KNOTS) or not self.low <= share <= self.high:
            raise ValueError(f"a range of budgets has {len(levels)} thresholds and a budget of {share}")
        self.share, self._thresholds = share, levels
        for end, each in (("lowest", self._lowest), ("highest", self._highest)):
            each.restore({name: state[f"{end}_{name}"] for name in each.state()})
        self.network.freeze_norms(self.begun)


def drawn_share(low: float, high: float, step: int) -> float:
    """The budget of a step, as a share of the dense FLOPs; always the same for a step, so that runs can be resumed."""
    draw = random.Random(step)
    end = draw.random()
    if end < LOWEST + HIGHEST:
        return low if end < LOWEST else high
    return low + (high - low) * float(draw.random() ** SKEW)
