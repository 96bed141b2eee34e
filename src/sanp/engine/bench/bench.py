"""Time against FLOPs: a network in the engine at several costs, beside the dense network in every runtime.

Threads are pinned, numbers are fp32, calls of all runtimes alternate, and times are medians. Ratios are to the fastest
dense fp32 runtime and to the engine's own dense time.
"""

import copy
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sanp.core.checks import check_fields
from sanp.core.errors import LossWarning, SanpError, unknown_name
from sanp.core.int8_calibration import kept_calibration
from sanp.engine.bench.runtimes import FP32, Call, call_on, dense_calls
from sanp.engine.bench.turns import ShowShare, durations, pinned
from sanp.engine.compiling import PRECISIONS, compile
from sanp.engine.tuning_cache import processor
from sanp.gating.accounting import mean_kept
from sanp.gating.count import ungated_cost
from sanp.gating.network import GatedNetwork
from sanp.methods.parts.pixel_gate import PixelGatedNetwork
from sanp.spm.recording import decisions_of, record

OWN = "engine, dense"
GATES_OPEN = "engine, gates open"
AS_IT_IS = "engine, as it is"
MOST_THREADS, MOST_SHARES = 1024, 100
"""threads of a runtime, which takes memory for each before it starts any, and costs that are measured"""


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """How a network is timed."""

    batch: int = 1
    """images in each call"""
    pruned: tuple[float, ...] = (0.34, 0.5, 0.67)
    """shares of the FLOPs to prune; 0: the gates decide, and all are open"""
    threads: int = 1
    """threads of every runtime"""
    seconds: float = 2.0
    """how long each thing is timed"""
    runtimes: tuple[str, ...] | None = None
    """names of :data:`RUNTIMES`; None: all of them"""
    core: int | None = None
    """processor core to stay on; None: the last one"""
    precision: str = "fp32"
    """what the engine computes in: fp32 or int8"""
    device: str = "cpu"
    """a device beside the CPU on which torch runs the network too: cuda or mps"""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch < 1 or self.threads < 1 or self.seconds <= 0:
            raise SanpError(
                f"batch {self.batch}, threads {self.threads} and seconds {self.seconds} must be positive: give at "
                "least one image and one thread"
            )
        if self.threads > MOST_THREADS:
            raise SanpError(f"threads {self.threads}: give at most {MOST_THREADS}")
        if self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)
        if len(self.pruned) > MOST_SHARES:
            raise SanpError(f"pruned has {len(self.pruned)} shares: give at most {MOST_SHARES}, each is measured")
        if not all(0 <= share < 1 for share in self.pruned):
            raise SanpError(f"pruned {self.pruned} are shares of the FLOPs: give numbers from 0 to below 1, as 0.67")


@dataclass(frozen=True)
class BenchRow:
    """One row of a benchmark: something that ran the batch, and how long it took."""

    what: str
    kept: float
    """share of the dense FLOPs that was computed, a mean over the images"""
    ms: float
    """milliseconds for one image"""
    of_best_dense: float | None
    """the time as a multiple of the fastest dense fp32 runtime's; None if there is no such runtime"""
    of_own_dense: float
    """the time as a multiple of the engine's on the dense network"""


@dataclass(frozen=True)
class Bench:
    """All rows of one network and batch."""

    network: str
    batch: int
    threads: int
    processor: str
    rows: tuple[BenchRow, ...]
    missing: Mapping[str, str]
    """runtimes that could not be timed, and why"""
    precision: str = "fp32"
    """what the engine computed in"""
    in_torch: tuple[str, ...] = ()
    """rows of the engine of which a part ran in torch, where nothing is skipped, or all"""

    @property
    def torch_note(self) -> str:
        """What a reader has to know of such rows; empty if there are none."""
        rows = "; ".join(self.in_torch)
        return f"a part ran in torch, which skips nothing (plan of sanp.compile says why): {rows}" if rows else ""

    def as_dict(self) -> dict[str, Any]:
        """For a line of results."""
        return asdict(self)


Prune = Callable[[GatedNetwork, Tensor, float], None]
"""sets the gates of a network so that a share of its FLOPs is left on the images"""


def meet_budget(gated: GatedNetwork, images: Tensor, kept: float) -> None:
    """Calibrates the thresholds to a budget: how a network is pruned for a benchmark unless one says otherwise."""
    gated.set_budget(kept, images, force=True)


def bench(
    name: str,
    dense: nn.Module,
    gated: nn.Module,
    images: Tensor,
    config: BenchConfig,
    *,
    prune: Prune = meet_budget,
    tell: Callable[[str], None] = lambda line: None,
    progress: ShowShare = lambda share: None,
) -> Bench:
    """Times a dense network in every runtime and its gated form in the engine, as it is and at the wanted costs.

    ``images`` (at least one) set the thresholds of each cost, and the ranges of int8 where a network keeps none. Calls
    take turns through several batches of them, so that a time belongs to the mean cost and not to one image's. ``name``
    is kept in the result. ``prune`` brings copies of a gated network to each cost. ``tell`` is called with what is
    being done, ``progress`` with the share of the timing that is done.
    """
    turns = [images[(torch.arange(config.batch) + first) % len(images)] for first in _starts(len(images), config.batch)]
    x = turns[0]
    with pinned(config.threads, config.core), torch.no_grad():
        calls, missing = dense_calls(dense, x, images, threads=config.threads, wanted=config.runtimes, tell=tell)
        tell("compiling: dense, in the engine ...")
        calls[OWN], native = _engine(dense, turns, images, config)
        in_torch = [] if native else [OWN]
        kept = {OWN: 1.0}
        for label, network in _variants(gated, dense, images, config.pruned, prune):
            tell(f"compiling: {label.removeprefix('engine, ')}, in the engine ...")
            kept[label] = statistics.fmean(_kept(network, dense, batch) for batch in turns)
            calls[label], native = _engine(network, turns, images, config)
            in_torch += [] if native else [label]
        if config.device != "cpu":
            label, place = f"torch on {config.device}", torch.device(config.device)
            tell(f"preparing: {label} ...")
            calls |= {label: call_on(place, dense, x), f"{label}, as it is": call_on(place, gated, x)}
            kept[f"{label}, as it is"] = _kept(gated, dense, x)
        tell(f"timing {len(calls)} networks in turns, {config.seconds * len(calls):.0f} s ...")
        alone = config.threads == 1 and config.device == "cpu"
        clock = time.process_time if alone else time.perf_counter
        taken = durations(calls, config.seconds * len(calls), clock, progress=progress)
    rows = _rows({what: statistics.median(found) for what, found in taken.items()}, kept, config.batch)
    return Bench(name, config.batch, config.threads, processor(), rows, missing, config.precision, tuple(in_torch))


def _rows(times: Mapping[str, float], kept: Mapping[str, float], batch: int) -> tuple[BenchRow, ...]:
    """The rows of what took these seconds for a batch; what is not in ``kept`` computed everything."""
    best = min((times[reference] for reference in FP32 if reference in times), default=None)
    return tuple(
        BenchRow(what, kept.get(what, 1.0), 1e3 * taken / batch, taken / best if best else None, taken / times[OWN])
        for what, taken in times.items()
    )


def _variants(
    gated: nn.Module, dense: nn.Module, images: Tensor, pruned: tuple[float, ...], prune: Prune
) -> Iterator[tuple[str, nn.Module]]:
    """The network as it is, unless nothing of it is pruned, and copies with the wanted shares pruned."""
    if not isinstance(gated, GatedNetwork):
        yield AS_IT_IS, gated
        return
    if _kept(gated, dense, images[:64]) < 0.999:
        yield AS_IT_IS, gated
    least = gated.cost.floor_flops / gated.dense_flops
    for share in pruned:
        if 1 - share < least:
            continue
        copied = copy.deepcopy(gated).eval()
        prune(copied, images, 1 - share)
        yield f"engine, {share:.0%} pruned" if share else GATES_OPEN, copied


def _kept(network: nn.Module, dense: nn.Module, x: Tensor) -> float:
    """The mean share of the dense FLOPs that a network computes on a batch."""
    if not isinstance(network, GatedNetwork | PixelGatedNetwork):
        return ungated_cost(network, x[:1]).dense_flops / ungated_cost(dense, x[:1]).dense_flops
    with torch.no_grad(), record(network) as gates:
        network(x)
    return mean_kept(network.cost, decisions_of(gates))


def _starts(images: int, batch: int) -> range:
    """Where the batches begin that calls take turns through: 32 of them, or as many as there are."""
    return range(0, min(images, 32 * batch), batch)


def _engine(network: nn.Module, turns: list[Tensor], images: Tensor, config: BenchConfig) -> tuple[Call, bool]:
    """A call of the compiled network, and whether all of it is native."""
    calibration = images if config.precision == "int8" and kept_calibration(network) is None else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)  # networks are timed here, and are often not trained
        fast = compile(
            network, turns[0][:4], threads=config.threads, precision=config.precision, calibration=calibration
        )
    order = itertools.cycle(turns)
    return lambda: fast(next(order)), fast.plan.native
