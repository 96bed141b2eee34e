"""What gating costs in training and in evaluation, and what Winograd's convolutions save: ratios for M-CifarNet.

    python benchmarks/training.py [--batch 256] [--rounds 7] [--threads 2] [--write]

Dense and gated steps alternate; the ratio of the medians of processor time is printed, which other work on the machine
disturbs less than the clock's. Two threads on a busy machine are no measurement: they wait for each other in a loop,
which counts as processor time (evaluation 2.05 there, 1.09 alone); give --threads 1. The gated step includes recording,
the cost model, the controller and the cost loss. Bar: at most 1.25 for both. --write adds the
figures to results/training.jsonl.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import torch
import torch.nn.functional as F

import sanp
from sanp.experiments.results import append
from sanp.training import winograd
from sanp.training.malloc import keep_freed_memory
from sanp.training.optimizers import sgd
from sanp.training.precision import Format

RESULTS = Path(__file__).parents[1] / "results" / "training.jsonl"


def timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


Pairs = dict[str, tuple[Callable[[], object], Callable[[], object]]]
"""by name, two pieces of work whose times are compared"""


def work_to_compare(batch: int, precision: str) -> tuple[str, Pairs]:
    """The number format that is used, and the work that is compared."""
    torch.manual_seed(0)
    dense = sanp.backbones.build("m_cifarnet", num_classes=10)
    gated = sanp.gate(dense, torch.zeros(1, 3, 32, 32))
    format = Format(dense, precision)
    exact = Format(dense, precision, exact=True)
    Format(gated, precision)
    x, y = format.place(torch.randn(batch, 3, 32, 32)), torch.randint(10, (batch,))
    config = sanp.FitConfig()
    budget = sanp.Budget(gated, "35%")
    own = sgd(list(dense.parameters()), 0.01, config)
    others = [sgd(gated.backbone_parameters(), 0.01, config), torch.optim.AdamW(gated.spm_parameters(), lr=1e-3)]

    def dense_step(autocast: Callable[[], AbstractContextManager[object]] = format.autocast) -> None:
        own.zero_grad()
        with autocast():
            loss = F.cross_entropy(dense(x).float(), y)
        loss.backward()
        own.step()

    def gated_step() -> None:
        for optimizer in others:
            optimizer.zero_grad()
        with format.autocast(), sanp.record(gated) as gates:
            output = gated(x)
        (F.cross_entropy(output.float(), y) + budget.loss(gates)).backward()
        for optimizer in others:
            optimizer.step()

    loader = [(x, y)]
    pairs: Pairs = {
        "training step": (dense_step, gated_step),
        "evaluation": (
            lambda: sanp.evaluate(dense, loader, precision=precision),
            lambda: sanp.evaluate(gated, loader, precision=precision),
        ),
    }
    if winograd.pays(format.precision):
        pairs["training step without and with Winograd"] = (lambda: dense_step(exact.autocast), dense_step)
    return format.precision, pairs


def main(batch: int, rounds: int, threads: int, precision: str, write: bool) -> None:
    keep_freed_memory()  # as a run does
    torch.set_num_threads(threads)
    used, pairs = work_to_compare(batch, precision)
    for name, (before, after) in pairs.items():
        before(), after()
        times = [(timed(before), timed(after)) for _ in range(rounds)]
        plain, more = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name} ({used}): {plain * 1e3:.0f} ms, {more * 1e3:.0f} ms, ratio {more / plain:.3f}")
        if write:
            setting = {"batch": batch, "rounds": rounds, "threads": threads, "precision": used}
            machine = {"capability": torch.backends.cpu.get_cpu_capability(), "machine": platform.machine()}
            append(RESULTS, {"name": name, "ratio": round(more / plain, 3), **setting, **machine})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--write", action="store_true")
    main(**vars(parser.parse_args()))
