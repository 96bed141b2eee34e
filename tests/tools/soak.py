"""Long use in one process: memory that does not grow, no file and no thread left over.

``python -m tests.tools.soak fits 200`` and ``python -m tests.tools.soak engine 1000000``.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

import sanp
from tests.conftest import coloured_squares
from tests.tools.tiny_run import Tiny

GROWTH = 0.02
"""what the memory may grow by after the first tenth, in which caches fill"""


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def left_over() -> tuple[int, int, int]:
    """Open files, threads of the process, and those that Python knows."""
    return (
        len(list(Path("/proc/self/fd").iterdir())),
        len(list(Path("/proc/self/task").iterdir())),
        threading.active_count(),
    )


def soak(once: Callable[[int], None], times: int, of: str) -> None:
    """Does it so many times and compares the process at the end with itself after the first tenth."""
    start, warm = time.monotonic(), max(1, times // 10)
    before, memory = left_over(), 0
    for number in range(times):
        once(number)
        if number + 1 in (warm, times):
            gc.collect()
            before, after = (left_over(), left_over()) if number + 1 == warm else (before, left_over())
            now = resident()
            print(f"{number + 1} of {times} {of}: {now / 2**20:.1f} MB, {after}, {time.monotonic() - start:.0f} s")  # noqa: T201
            if number + 1 == warm:
                memory = now
    grown = now / memory - 1
    if grown > GROWTH or after != before:
        sys.exit(f"the memory grew by {grown:.1%}, (files, threads, Python's threads) went from {before} to {after}")
    print(f"memory {grown:+.2%} after the first tenth; files and threads as before")  # noqa: T201


def fits(times: int) -> None:
    """Fits of a tiny network, each from the start."""
    images, labels = coloured_squares(64)
    config = sanp.FitConfig(warmup_epochs=1, joint_epochs=1, precision="fp32", norm_batches=1, calibrate_images=64)

    def once(number: int) -> None:
        gated = sanp.gate(Tiny(), images[:1])
        sanp.fit(gated, [(images[:32], labels[:32]), (images[32:], labels[32:])], "60%", config=config)
        sanp.evaluate(gated, [(images, labels)])

    soak(once, times, "fits")


def engine(images: int) -> None:
    """Images through a compiled network, in batches of 100."""
    gated = sanp.gate(Tiny(), torch.zeros(1, 3, 8, 8)).eval()
    many, _ = coloured_squares(1000)
    gated.set_budget("50%", many)
    fast = sanp.compile(gated, many[:1])

    def once(number: int) -> None:
        place = 100 * (number % 10)
        fast(many[place : place + 100])

    soak(once, images // 100, "batches of 100 images")


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"fits": fits, "engine": engine}[sys.argv[1]](int(sys.argv[2]))
