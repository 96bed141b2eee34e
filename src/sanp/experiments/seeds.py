"""Several seeds of one run: their number, mean and standard deviation."""

import statistics
from collections.abc import Sequence

from sanp.core.errors import SanpError

MOST_SEEDS = 1000
"""seeds of one run"""


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation (of a sample, n - 1) as text; of one value, the value alone."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def check_seeds(count: int) -> None:
    """Raises an error for a number of seeds that nobody can run."""
    if not 1 <= count <= MOST_SEEDS:
        raise SanpError(f"seeds {count}: give at least 1, at most {MOST_SEEDS}")
