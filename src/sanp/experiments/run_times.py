"""Budgets that are times, as in ``sanp train --budget 1.2ms``: a run measures the table that they need by itself.

First on an untrained copy of the network, which says what share of the FLOPs the time is. Training changes which layers
are pruned, and with it the time of a share; so the table is measured again in training, and once more at its end.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from torch import Tensor

from sanp.core.checks import as_number
from sanp.core.distributed import by_first, rank, texts
from sanp.core.errors import SanpError
from sanp.core.files import read_text, write_text
from sanp.core.limits import LARGEST_COUNT
from sanp.engine.bench.latency import latency_table
from sanp.gating.amount import LatencyTable, parse_budget
from sanp.gating.budget_range import parse_range
from sanp.gating.network import GatedNetwork

LATENCY = "latency.json"
"""file of a run folder that holds the last table"""
SLOWER = 1.02
"""a trained network that takes this many times the budget is set to a smaller share of the FLOPs"""


class RunTimes:
    """Measures the tables of a run in ``folder`` whose ``budget`` is a time.

    ``images`` gives training images to time; ``tell`` takes lines for the user.
    """

    def __init__(self, folder: Path, budget: str, images: Callable[[], Tensor], tell: Callable[[str], None]) -> None:
        self.repeated = False
        """whether the table was measured in training"""
        self._folder, self._budget, self._images, self._tell = folder, budget, images, tell
        self._table: LatencyTable | None = None
        self._read()

    def __call__(self, gated: GatedNetwork, *, again: bool = False) -> LatencyTable:
        """The table; it is measured on copies of ``gated`` where there is none yet, or ``again``."""
        if self._table is None or again:
            self._tell(f"budget {self._budget}: measuring the time of an image at several costs, with one thread ...")
            self.repeated = again
            points = latency_table(gated, self._images()).points if rank() == 0 else ()
            self._table = LatencyTable(tuple((share, ms) for share, ms in json.loads(texts(json.dumps(points))[0])))
            by_first(self._write)
            self._tell(said_of_table(self._table, self._budget))
        return self._table

    def settle(self, gated: GatedNetwork) -> None:
        """Measures a trained network; if it takes longer than its budget, it is set to fewer FLOPs.

        It is never set to more: channels that training closed would open. One that cannot be that fast stays as it
        is, and the user is told.
        """
        before, table = gated.trained, self(gated, again=True)
        gated.latency = table
        if parse_range(self._budget) is not None or before is None:
            return
        wanted, (share, fastest) = parse_budget(self._budget), table.points[0]
        if wanted.value < fastest:
            self._tell(f"{self._budget} is missed: after training, {share:.1%} of the FLOPs take {fastest:.3g} ms")
        elif table.milliseconds(before.low) > SLOWER * wanted.value:
            gated.set_budget(gated.kept_for(self._budget), self._images(), force=True)
            gated.budget = wanted

    def _write(self) -> None:
        assert self._table is not None
        write_text(self._folder / LATENCY, json.dumps({**asdict(self._table), "repeated": self.repeated}))

    def _read(self) -> None:
        """Takes the table of an interrupted run."""
        path = self._folder / LATENCY
        if not path.is_file():
            return
        try:
            found = json.loads(read_text(path))
            points = tuple((as_number(share), as_number(ms)) for share, ms in found["points"])
            self.repeated = bool(found["repeated"])
            if len(points) < 2 or not all(0 < share <= 1 and 0 < ms <= LARGEST_COUNT for share, ms in points):
                raise ValueError("fewer than two points, or one that is no share and time")
            if any(share >= more or ms > longer for (share, ms), (more, longer) in pairwise(points)):
                raise ValueError("shares or times do not ascend")
            self._table = LatencyTable(points)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise SanpError(f"{path} is damaged ({type(error).__name__}: {error}): remove it, then resume") from error


def said_of_table(table: LatencyTable, budget: str) -> str:
    """A table in one line: the dense time, the shortest, and what the budget is of the FLOPs."""
    (least, fastest), (_, dense) = table.points[0], table.points[-1]
    wanted = parse_range(budget)
    ends = (parse_budget(budget),) if wanted is None else (wanted.low, wanted.high)
    takes = f"an image takes {dense:.3g} ms dense and {fastest:.3g} ms at {least:.0%} of the FLOPs on this machine"
    if ends[0].value < fastest:
        return f"{takes}: {budget} is out of reach"
    shares = " to ".join(f"{each.kept_of(1.0, table):.1%}" for each in ends)
    return f"{takes}: {budget} is {shares} of the FLOPs"
