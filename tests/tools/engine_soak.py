"""Many random cases: ``python -m tests.tools.engine_soak 100000 [first seed]``; SANP_ISA picks the kernels."""

import sys
import time

import torch

from tests.tools.engine_cases import random_case, run_case


def main(count: int, first: int = 0) -> None:
    """Stops at the first case that differs."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    for seed in range(first, first + count):
        outcome = run_case(random_case(seed))
        if not outcome.right:
            raise SystemExit(outcome.story)
        if (seed - first + 1) % 1000 == 0:
            sys.stdout.write(f"{seed - first + 1} cases agree, {time.perf_counter() - start:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
