"""The row of the paper's tables to compare a run with: the same backbone, data and method."""

from dataclasses import dataclass

from sanp.experiments.paper.tables import PAPER


@dataclass(frozen=True)
class PaperRow:
    """A row: test error and multiply-adds per image of the pruned network, and of the unpruned one."""

    table: int
    error: float
    flops: float
    dense_error: float
    dense_flops: float

    @property
    def pruned(self) -> float:
        """Share of the FLOPs that is saved."""
        return 1 - self.flops / self.dense_flops


_DATA = {"table1": "cifar10", "table2": "cifar100", "table3": "cifar10"}


def paper_row(data: str, backbone: str, method: str, kept: float) -> PaperRow | None:
    """The row of this backbone, data and method whose share of the FLOPs is nearest to ``kept``, if there is one."""
    rows = []
    for table in (table for table, on in _DATA.items() if on == data):
        row, dense = PAPER.get(f"{table}/{backbone}-{method}"), PAPER.get(f"{data}-{backbone}-dense")
        if row is not None and dense is not None:
            number = int(table.removeprefix("table"))
            rows.append(PaperRow(number, row[0] / 100, 1e6 * row[1], dense[0] / 100, 1e6 * dense[1]))
    return min(rows, key=lambda row: abs(1 - row.pruned - kept), default=None)
