"""The command line that knows the tiny network and its images: ``python -m tests.tools.tiny_sanp train ...``.

With ``DIES=1`` the process of rank 1 kills itself in its second epoch, as a crash would.
"""

import os
import signal

from torch import Tensor

from sanp.cli.app import main
from tests.tools import tiny_run


def die_after(forwards: int) -> None:
    """Makes the process kill itself in this forward of the network in training."""
    whole, seen = tiny_run.Tiny.forward, [0]

    def forward(self: tiny_run.Tiny, x: Tensor) -> Tensor:
        seen[0] += self.training
        if seen[0] == forwards:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(self, x)

    tiny_run.Tiny.forward = forward  # type: ignore[method-assign]


if __name__ == "__main__":
    tiny_run.install()
    if os.environ.get("DIES") == os.environ.get("RANK", "none"):
        die_after(12)  # an epoch has eight steps
    main()
