"""Damaged files by the thousand: each loads or raises our error; nothing hangs, crashes or fills the memory.

``python -m tests.tools.fuzz 200000 [first case]``. A case is its number: with ``1 N`` only case N is run.
"""

import faulthandler
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import FrameType

import torch

from tests.tools import tiny_run
from tests.tools.fuzz_targets import targets

SECONDS = 20
"""of processor time that a case may take, and ten times that by the clock, for a machine may have other work"""
MEMORY = 2 * 2**30
"""bytes that a case may add to the process"""


class Hang(BaseException):
    """A case took too long; not an Exception, so that no handler takes it for a damaged file."""


class Memory:
    """The most memory that the process held since the last look, as Linux counts it."""

    def __init__(self) -> None:
        self.before = self._read("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what it holds now

    def grown(self) -> int:
        """Bytes at the highest above those at the start."""
        return self._read("VmHWM") - self.before

    @staticmethod
    def _read(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


@dataclass
class Worst:
    """The most that one case took, and its number."""

    seconds: tuple[float, int] = (0.0, -1)
    bytes: tuple[int, int] = (0, -1)


def run_cases(
    numbers: range, folder: Path, note: Callable[[int], None] = lambda number: None, worst: Worst | None = None
) -> Counter[str]:
    """Runs the cases of these numbers; gives how many files of each kind were read and refused.

    ``note`` is called before each case; ``worst`` is filled in.
    """
    worst = worst or Worst()
    kinds = list(targets(folder).values())
    seen: Counter[str] = Counter()

    def hang(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = {number: signal.signal(number, hang) for number in (signal.SIGPROF, signal.SIGALRM)}
    try:
        for number in numbers:
            note(number)
            dice = random.Random(number)
            target = dice.choice(dice.choice(kinds))
            memory, start = Memory(), time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(10 * SECONDS)
            try:
                with redirect_stderr(StringIO()):
                    seen[f"{target.name} {'read' if target.run(dice) else 'refused'}"] += 1
            except (Exception, Hang) as error:
                raise AssertionError(f"case {number} ({target.name}): {type(error).__name__}: {error}") from error
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.alarm(0)
            worst.seconds = max(worst.seconds, (time.process_time() - start, number))
            worst.bytes = max(worst.bytes, (memory.grown(), number))
            assert worst.bytes[0] < MEMORY, f"case {number} ({target.name}): {worst.bytes[0] / 2**30:.1f} GB more"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return seen


def main(count: int, first: int = 0) -> None:
    """Runs the cases in a process of its own, so that a crash can be told with its number."""
    shared = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        faulthandler.enable()
        torch.set_num_threads(1)
        tiny_run.install()
        room = 16 * MEMORY  # of addresses; more is refused by the system before it takes the machine down
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        start, worst = time.monotonic(), Worst()

        def note(number: int) -> None:
            shared[:8] = number.to_bytes(8, "little")
            if (number - first) % 5000 == 0:
                print(f"case {number}, {time.monotonic() - start:.0f} s", flush=True)  # noqa: T201

        with tempfile.TemporaryDirectory() as folder:
            seen = run_cases(range(first, first + count), Path(folder), note, worst)
        for what, number in sorted(seen.items()):
            print(f"{what}: {number}")  # noqa: T201
        print(f"most processor time: {worst.seconds[0]:.1f} s in case {worst.seconds[1]}")  # noqa: T201
        print(f"most memory: {worst.bytes[0] / 2**20:.0f} MB in case {worst.bytes[1]}")  # noqa: T201
        print(f"{count} cases in {time.monotonic() - start:.0f} s: nothing hung, crashed or grew")  # noqa: T201
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        sys.exit(f"signal {os.WTERMSIG(status)} in case {int.from_bytes(shared[:8], 'little')}")
    sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
