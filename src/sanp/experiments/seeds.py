"""Several seeds of one run: mean and standard deviation."""

import statistics
from collections.abc import Sequence


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation (of a sample, n - 1) as text; of one value, the value alone."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"
