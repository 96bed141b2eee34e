"""What a share of the FLOPs takes in milliseconds on this machine, so that a budget can be a time."""

import copy
import math
import statistics
import time
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sanp.core.checks import check_kind
from sanp.core.errors import BudgetWarning, SlowWarning
from sanp.core.modules import evaluating
from sanp.engine.compiled import Engine
from sanp.engine.compiling import compile
from sanp.gating.amount import LatencyTable
from sanp.gating.network import GatedNetwork
from sanp.gating.thresholds import kept_on

OPEN_LEVEL = -1e6
"""a threshold that every saliency is above"""
MOST_TIMED = 32
"""images that are timed at most"""
NEAREST = 0.01
"""a cost this near to one that is timed already is left out, as where a trained network cannot reach a share"""
SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.08)


def latency_table(
    network: GatedNetwork, images: Tensor, *, shares: Sequence[float] = SHARES, threads: int = 1, repeats: int = 5
) -> LatencyTable:
    """Measures copies of the network at several costs; set as ``network.latency``, the table lets budgets be times.

    ``images`` set the thresholds of each cost and are what is timed, one in each call; a few dozen will do. ``shares``
    are shares of the dense FLOPs; those that the network cannot reach are left out. The dense one has all gates open. A
    cap on the FLOPs of an image is left aside. ``threads`` is how many threads a call uses.
    ``repeats`` is how many times every image, of at most ``MOST_TIMED``, is timed: a time is the mean over the images
    of the shortest time of each, since gates differ between images and only other work makes a call longer.
    """
    check_kind("network", network, GatedNetwork, "what sanp.gate returned")
    check_kind("images", images, Tensor, "a tensor of images")
    with torch.autocast("cpu", enabled=False), torch.no_grad():  # training measures in the middle of a step, in bf16
        engines = _engines(network, images, shares, threads)
        taken = _times([engine for _, engine in engines], images[:MOST_TIMED], repeats)
    measured = [(share, statistics.mean(times)) for (share, _), times in zip(engines, taken, strict=True)]
    return LatencyTable(tuple(_rising(measured)))


def _engines(
    network: GatedNetwork, images: Tensor, shares: Sequence[float], threads: int
) -> list[tuple[float, Engine]]:
    """Compiled copies of the network, each with the share of the dense FLOPs that it reaches on these images."""
    least = network.cost.floor_flops / network.dense_flops
    engines: list[tuple[float, Engine]] = []
    for share in sorted(share for share in shares if share >= least):
        cheaper = copy.deepcopy(network).eval()
        cheaper.cap = None
        reached = _set_share(cheaper, share, images)
        if all(abs(reached - other) > NEAREST for other, _ in engines):
            engines.append((reached, compile(cheaper, images[:1], threads=threads)))
    return engines


def _times(engines: list[Engine], images: Tensor, repeats: int) -> list[list[float]]:
    """The shortest time of each image in each engine, in milliseconds."""
    timed = [image[None].contiguous() for image in images]
    taken = [[math.inf] * len(timed) for _ in engines]
    for _ in range(repeats + 1):  # an engine's calls follow one another, so that its weights stay in the cache
        for times, engine in zip(taken, engines, strict=True):
            for number, image in enumerate(timed):
                start = time.perf_counter()
                engine(image)
                times[number] = min(times[number], 1e3 * (time.perf_counter() - start))
    return taken


def _set_share(network: GatedNetwork, share: float, images: Tensor) -> float:
    """Sets a copy of the network to a share of the dense FLOPs; returns the share that was reached on these images."""
    if share == 1:
        for layer in network.layers.values():
            layer.spm.level = 0.0 if layer.spm.binarize.same_in_all_layers else OPEN_LEVEL
        with evaluating(network):
            return kept_on(network, [images])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)  # the table has the share that was reached
        return network.set_budget(share, images, force=True)


def _rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points by rising cost; a time above that of a higher cost is noise, and is lowered to it."""
    kept: list[tuple[float, float]] = []
    for share, taken in sorted(points, reverse=True):
        kept.append((share, min(taken, kept[-1][1]) if kept else taken))
    return kept[::-1]


def seconds_per_image(networks: Sequence[nn.Module], images: Tensor, *, rounds: int = 30) -> list[float | None]:
    """The median time of ``rounds`` calls with one image on one thread, for each network.

    None where the engine cannot run the whole network natively. Times are the processor's, which on one thread is what
    the clock shows on an idle machine. Calls take the images in turn, for gates may decide differently on each.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)  # the result says it
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
