"""Seconds for one image: several networks in the engine, taking turns so that a disturbance meets all of them alike."""

import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sanp.engine.compile import compile


def seconds_per_image(networks: Sequence[nn.Module], images: Tensor, *, rounds: int = 30) -> list[float | None]:
    """The median of calls with one image on one thread, for each network; None where the engine cannot run all of it.

    The processor's time, which on one thread is what the clock shows on a machine with nothing else to do. The images
    are taken in turn: where gates look at the image, each has its own time.
    """
    engines = [compile(network, images[:1], threads=1) for network in networks]
    native = [number for number, engine in enumerate(engines) if engine.plan.native]
    taken: dict[int, list[float]] = {number: [] for number in native}
    with torch.no_grad():
        for turn in range(rounds + 1):
            image = images[turn % len(images)][None]
            for number in native:
                start = time.process_time()
                engines[number](image)
                taken[number].append(time.process_time() - start)
    medians = {number: statistics.median(times[1:]) for number, times in taken.items()}  # the first warms the caches
    return [medians.get(number) for number in range(len(engines))]
