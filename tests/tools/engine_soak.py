"""Many random cases: ``python -m tests.tools.engine_soak 100000 [first seed]``; SANP_ISA picks the kernels.

One case in a hundred is a network, which is gated and compiled; the others are programs for the library, in fp32 and on
bytes.
"""

import sys
import time

import torch

from tests.tools.byte_cases import wrong_byte_cases
from tests.tools.engine_cases import random_case, run_case
from tests.tools.engine_networks import wrong_network


def main(count: int, first: int = 0) -> None:
    """Stops at the first case that differs."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    for seed in range(first, first + count):
        wrong = wrong_network(seed) if seed % 100 == 0 else None
        if wrong is not None:
            raise SystemExit(wrong)
        outcome = run_case(random_case(seed))
        if not outcome.right:
            raise SystemExit(outcome.story)
        if stories := wrong_byte_cases(range(seed, seed + 1)):
            raise SystemExit("\n".join(stories))
        if (seed - first + 1) % 1000 == 0:
            sys.stdout.write(f"{seed - first + 1} cases agree, {time.perf_counter() - start:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
