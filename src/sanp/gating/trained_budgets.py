"""The budgets that a network was trained for; set_budget refuses those above, and warns of those below."""

import warnings
from dataclasses import dataclass

from sanp.core.errors import BudgetWarning, SanpError

SLACK = 0.01
"""share of the dense FLOPs by which a budget may differ from what the network was trained for"""
MISSED = 0.01
"""share of the dense FLOPs from which on a missed budget is told to the user"""


@dataclass(frozen=True)
class TrainedBudgets:
    """The smallest and the largest share of the dense FLOPs that a network was trained for; both are the same for one
    budget."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high <= 1:
            raise SanpError(f"a network cannot be trained for {self.low} to {self.high} of its FLOPs")

    def __str__(self) -> str:
        return f"{self.low:.1%}" if self.low == self.high else f"{self.low:.1%} to {self.high:.1%}"

    def check(self, kept: float) -> None:
        """An error for a share ``kept`` above what was trained, a warning for one below.

        Above, channels open that training had closed: nothing says what they compute, and their saliencies are
        negative. Below, channels close that the rest of the network relies on.
        """
        if kept > self.high + SLACK:
            raise SanpError(
                f"a budget of {kept:.1%} of the dense FLOPs is above {self}, which this network was trained for: "
                "channels that training closed would spoil its outputs (one for 22 % that was set to 26 % was wrong on "
                f'88 % of the images). Train it for a range, budget="{self.low:.0%}..{kept:.0%}", or give force=True'
            )
        if kept < self.low - SLACK:
            warnings.warn(
                f"a budget of {kept:.1%} of the dense FLOPs is below {self}, which this network was trained for: its "
                "error rises fast (a network for 22 % of the FLOPs with 8.3 % error: 13.5 % at 18, 27 % at 15). Train "
                f'it for a range, budget="{kept:.0%}..{self.high:.0%}", or give force=True if it is meant',
                BudgetWarning,
                stacklevel=3,
            )


def check_reached(reached: float, kept: float) -> None:
    """Warns if calibrated thresholds leave another share of the dense FLOPs than was asked for."""
    if abs(reached - kept) > MISSED:
        warnings.warn(
            f"the thresholds leave {reached:.1%} of the dense FLOPs on these images, and {kept:.1%} was asked for: no "
            "common threshold comes closer; give more images, or train the network for this budget",
            BudgetWarning,
            stacklevel=3,
        )
