"""A range of budgets as a user writes it, such as "20%..60%": one network is trained for all of them."""

from dataclasses import dataclass

from sanp.core.errors import SanpError
from sanp.gating.amount import Amount, LatencyTable, parse_budget
from sanp.gating.cap import check_cap
from sanp.gating.cost import CostModel, kept_for


@dataclass(frozen=True)
class BudgetRange:
    """The budgets from ``low`` to ``high``."""

    low: Amount
    high: Amount

    def kept(self, cost: CostModel, latency: LatencyTable | None = None) -> tuple[float, float]:
        """Both ends as shares of the dense FLOPs; an error if the gates cannot reach them, or if they are not a range.

        A time needs the table ``latency``.
        """
        low, high = kept_for(self.low, cost, latency), kept_for(self.high, cost, latency)
        if not low < high:
            raise SanpError(f"the range of budgets {self} does not rise: give the smaller one first, as 20%..60%")
        return low, high

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


def parse_range(given: object) -> BudgetRange | None:
    """Reads a range of budgets, ``"20%..60%"``, ``"35M..90M"`` or ``"0.8ms..2ms"``; None if it is a single budget."""
    if isinstance(given, BudgetRange):
        return given
    if not isinstance(given, str) or ".." not in given:
        return None
    low, _, high = given.partition("..")
    found = BudgetRange(parse_budget(low), parse_budget(high))
    if found.low.unit == found.high.unit and not found.low.value < found.high.value:
        raise SanpError(f"the range of budgets {given!r} does not rise: give the smaller one first, as 20%..60%")
    return found


def check_budget(given: object) -> None:
    """Raises an error for what is neither a budget nor a range of budgets."""
    if parse_range(given) is None:
        parse_budget(given)


def is_time(given: object) -> bool:
    """Whether a budget, or an end of a range of budgets, is a time."""
    found = parse_range(given)
    ends = (parse_budget(given),) if found is None else (found.low, found.high)
    return "ms" in {each.unit for each in ends}


def check_reachable(
    budget: object, cost: CostModel, latency: LatencyTable | None = None, max_flops: object = None
) -> None:
    """Raises an error for a budget, or a range of budgets, that the gates cannot reach.

    ``latency`` is the table of a budget that is a time, ``max_flops`` what no image may cost more than.
    """
    found = parse_range(budget)
    most = kept_for(budget, cost, latency) if found is None else found.kept(cost, latency)[1]
    if max_flops is not None:
        check_cap(max_flops, cost, most)
