"""The rows of the paper's tables 1 to 3, to stand beside a run of the same backbone, data and method."""

from dataclasses import dataclass


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


_DENSE = {  # error in percent, millions of multiply-adds
    ("cifar10", "m_cifarnet"): (8.63, 174.3),
    ("cifar10", "vgg19"): (6.34, 398.5),
    ("cifar10", "resnet18"): (5.40, 501.0),
    ("cifar100", "vgg19"): (26.74, 398.5),
    ("cifar100", "resnet18"): (24.95, 501.0),
}
_PRUNED = {
    ("cifar10", "m_cifarnet"): [("fbs", 1, 9.41, 44.3), ("sanp", 1, 9.41, 39.3)],
    ("cifar10", "vgg19"): [("ns", 1, 6.20, 195.5), ("fcp", 1, 6.24, 143.9), ("sanp", 1, 6.18, 133.9)],
    ("cifar10", "resnet18"): [
        ("cg", 1, 5.62, 172.0),
        ("sanp", 1, 5.64, 163.0),
        ("fixed_k", 3, 5.62, 331.0),
        ("static", 3, 5.48, 337.0),
        ("sanp", 3, 5.41, 333.0),
    ],
    ("cifar100", "vgg19"): [("ns", 2, 26.52, 250.5), ("fcp", 2, 26.45, 196.3), ("sanp", 2, 26.47, 170.6)],
    ("cifar100", "resnet18"): [("cg", 2, 25.24, 200.0), ("sanp", 2, 25.20, 189.0)],
}


def paper_row(data: str, backbone: str, method: str, kept: float) -> PaperRow | None:
    """The row of this backbone, data and method whose share of FLOPs is nearest to ``kept``."""
    here = (data, backbone)
    if here not in _PRUNED:
        return None
    error, flops = _DENSE[here]
    rows = [
        PaperRow(table, row_error / 100, 1e6 * row_flops, error / 100, 1e6 * flops)
        for name, table, row_error, row_flops in _PRUNED[here]
        if name == method
    ]
    return min(rows, key=lambda row: abs(1 - row.pruned - kept), default=None)
