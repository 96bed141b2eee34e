"""What a classifier says of images and does for them, computed by the engine."""

import time
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sanp.core.devices import CPU, finish_work
from sanp.core.errors import LossWarning, SlowWarning
from sanp.core.modules import device_of, evaluating
from sanp.engine.compiled import Engine
from sanp.engine.compiling import compile
from sanp.evaluation import Onlooker, Seen

TIMES = 5
"""calls that an image is timed over; their median is the time"""


class FastLook:
    """As :class:`sanp.evaluation.Onlooker`, by a compiled copy of a network, and in torch where that cannot tell.

    ``network`` may be pruned or not, and later changes of it do not count; ``example`` is an input for it. For
    ``precision="int8"`` it must have been calibrated. On another device than the CPU the network itself runs, in torch.
    """

    def __init__(self, network: nn.Module, example: Tensor, precision: str = "fp32") -> None:
        self._slow = Onlooker(network, example)
        self.cost = self._slow.cost
        self._device = device_of(network)
        self.engine: Engine | None = None
        if self._device == CPU:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SlowWarning)  # what runs in torch here takes no longer than before
                warnings.simplefilter("ignore", LossWarning)  # told when it was calibrated; one image says little
                self.engine = compile(network.eval(), example, precision=precision)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Seen:
        """Runs the network on normalised images (N, C, H, W)."""
        found = None if self.engine is None else self.engine.run_recorded(x)
        if found is None or len(found[0]) != 1:
            return self._slow(x)
        (output,), decided = found
        decisions = {name: decision.double() for name, decision in decided.items()}
        opened = {name: mask.expand(len(x), -1) for name, mask in self.cost.open_outputs(decisions).items()}
        return Seen(output.float().softmax(1), self.cost.per_sample(decisions).expand(len(x)), opened)

    def seconds(self, x: Tensor) -> float:
        """The median time of a call."""
        run = self.engine or self._slow.network
        x, taken = x.to(self._device), []
        with evaluating(self._slow.network), torch.inference_mode():
            for _ in range(TIMES):
                start = time.perf_counter()
                run(x)
                finish_work(self._device)
                taken.append(time.perf_counter() - start)
        return sorted(taken)[TIMES // 2]


def error_and_kept(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, Tensor]:
    """The share of images that a network gets wrong, and of each image (N,) the share of the dense FLOPs it costs."""
    look: FastLook | None = None
    wrong, shares = 0, []
    for x, y in batches:
        look = look or FastLook(network, x[:1])
        seen = look(x)
        wrong += int((seen.probabilities.argmax(1) != y).sum())
        shares.append(seen.flops / look.cost.dense_flops)
    kept = torch.cat(shares)
    return wrong / len(kept), kept
