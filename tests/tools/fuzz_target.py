"""What the fuzzer damages: a kind of file, where it lies, what reads it, and how it can be damaged."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sanp.cli.console import plain
from sanp.core.errors import SanpError
from tests.tools import mutate
from tests.tools.fuzz_places import in_its_place

LONGEST = 20_000
"""letters of an error; damage puts names of 5,000 into files"""


@dataclass(frozen=True)
class Target:
    """A kind of file: whole ones, where it lies, what reads it, and how it can be damaged."""

    name: str
    whole: list[bytes]
    path: Path
    read: Callable[[], object]
    mutations: list[mutate.Mutation]
    placed: bool = True
    """whether something else may lie in its place"""

    def run(self, dice: random.Random) -> bool:
        """Reads one damaged file; whether it could be read."""
        whole = dice.choice(self.whole)
        if self.placed and dice.random() < 0.04:
            with in_its_place(self.path, whole, dice):
                return self._is_read()
        self.path.write_bytes(dice.choice(self.mutations)(whole, dice))
        return self._is_read()

    def _is_read(self) -> bool:
        try:
            self.read()
        except SanpError as error:
            assert len(str(error).strip()) > 10, f"an empty error: {error!r}"
            assert len(str(error)) < LONGEST, f"an error of {len(str(error))} letters"
            assert plain(error).isprintable()
            return False
        return True


def kept_whole(path: Path, use: Callable[[], object]) -> Callable[[], object]:
    """Calls ``use`` and puts the file back as it is now, for readers of a folder of which the next case damages another
    file."""
    whole = path.read_bytes()

    def read() -> object:
        try:
            return use()
        finally:
            if path.is_file() and not path.is_symlink():
                path.unlink()  # it may be another name of a file outside
                path.write_bytes(whole)

    return read
