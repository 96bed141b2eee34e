"""Time against FLOPs of networks: lines in results/engine.jsonl, the tables and the figure that quote them.

    python benchmarks/engine.py                       # all networks, batches 1 and 64, one pinned thread
    python benchmarks/engine.py --network m_cifarnet --batch 1 --seconds 5
    python benchmarks/engine.py --network mobilenet_v2    # one of zoo.py: its gates open, and half of it pruned
    python benchmarks/engine.py --network mobilenet_v2 --operators   # where the time goes, operator by operator
    python benchmarks/engine.py --threads 2           # how two threads scale, beside ONNX Runtime
    python benchmarks/engine.py --tables              # measures nothing: tables and figure from the lines

Every image of a batch has its own mask.
"""

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import zoo
from torch import Tensor, nn

import sanp
from sanp.backbones import ResNet18
from sanp.core.errors import SlowWarning
from sanp.engine import compile, profile
from sanp.engine.bench.bench import Bench, BenchConfig, Prune, bench, meet_budget
from sanp.engine.bench.images import random_images
from sanp.engine.bench.runtimes import Call, dense_calls
from sanp.engine.bench.tables import (
    engine_table,
    threads_table,
    time_against_flops,
    without_open_gates,
    write_figure,
    zoo_table,
)
from sanp.engine.bench.turns import durations
from sanp.engine.tuning_cache import processor
from sanp.experiments.documents import fill
from sanp.experiments.results import append, commit, read_results
from sanp.gating.network import GatedNetwork

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "engine.jsonl"
THREADS = ROOT / "results" / "threads.jsonl"
QUOTED = (ROOT / "docs" / "engine.md", ROOT / "README.md")
FIGURE = ROOT / "docs" / "figures" / "time-against-flops.svg"
NAMES = {
    "m_cifarnet": "M-CifarNet",
    "resnet18": "ResNet-18 (CIFAR)",
    "vgg19": "VGG-19 (CIFAR)",
    "imagenet_resnet18": "ResNet-18 (224x224)",
    **zoo.NAMES,
}
OWN = [name for name in NAMES if name not in zoo.NAMES]
LARGE = ("imagenet_resnet18", *zoo.NAMES)
PRUNED = (0.34, 0.5, 0.67)
OPEN_AND_HALF = (0.0, 0.5)
"""what is pruned of a zoo's network"""


def network(name: str) -> tuple[nn.Module, Tensor]:
    """A network whose batch norms have seen images, and images."""
    torch.manual_seed(0)
    large = name in LARGE
    if name in zoo.NAMES:
        net = zoo.build(name)
    else:
        net = ResNet18(1000, stem="large") if large else sanp.backbones.BACKBONES[name](num_classes=10)
    shape = zoo.SHAPE if large else (3, 32, 32)
    net.train()
    with torch.no_grad():
        for step in range(2 if name in zoo.NAMES else 3):
            net(random_images(shape, 4 if name in zoo.NAMES else 16, seed=step))
    return net.eval(), random_images(shape, 8 if name in zoo.NAMES else 32 if large else 128, seed=5)


def gated_form(name: str, net: nn.Module, images: Tensor) -> GatedNetwork:
    """The network with SPMs. Of an untrained one of a zoo, factors above 1 would overflow in fifty layers."""
    spm = sanp.SPMConfig(most=1.0) if name in zoo.NAMES else None
    return sanp.gate(net, images[:1], spm=spm).eval()


def pruning(name: str) -> Prune:
    """How a network is brought to a cost: one of a zoo has no gates that were trained, and gets random ones."""
    return zoo.close_gates if name in zoo.NAMES else meet_budget


def line_of(found: Bench, seconds: float) -> dict[str, object]:
    versions = {"torch": torch.__version__}
    for package in ("onnxruntime", "openvino", "nncf"):
        try:
            versions[package] = __import__(package).__version__
        except ImportError:
            continue
    return {**found.as_dict(), "seconds": seconds, "versions": versions, "commit": commit()}


TURNS = 10
"""a machine gives threads less than a core each for seconds at a time: what is measured is spread over all of them"""


def scaling(name: str, batch: int, threads: int, seconds: float) -> dict[str, dict[str, float]]:
    """How much faster several threads are than one, by medians and by the fastest tenth of the calls: the engine, and
    ONNX Runtime on the same machine.

    Each is timed by itself, for others' threads go on spinning after their call and would take a core from the next.
    One image that threads share is timed as in steady use, in long bursts: one thread and several have weights of their
    own, which take turns in the cache. Last, threads that have an image each and wait for nobody: what the machine
    gives at the time.
    """
    net, images = network(name)
    gated = gated_form(name, net, images)
    pruning(name)(gated, images, 0.33)

    def engine(net: nn.Module, x: Tensor, count: int) -> Call:
        fast = compile(net, x[:4], threads=count)
        return lambda: fast(x)

    def runtime(net: nn.Module, x: Tensor, count: int) -> Call:
        return dense_calls(net, x, images, threads=count, wanted=("ONNX Runtime",))[0]["ONNX Runtime"]

    x, pair = images[:batch].contiguous(), images[:threads].contiguous()
    calls = {
        "engine, dense": {"one": engine(net, x, 1), "several": engine(net, x, threads)},
        "engine, 67% pruned": {"one": engine(gated, x, 1), "several": engine(gated, x, threads)},
        "ONNX Runtime": {"one": runtime(net, x, 1), "several": runtime(net, x, threads)},
        "an image each": {"one": engine(gated, pair[:1], 1), "several": engine(gated, pair, threads)},
    }
    long = {"warm": 5, "burst": 20} if batch < threads else {}
    times: dict[str, dict[str, list[float]]] = {what: {"one": [], "several": []} for what in calls}
    with torch.no_grad():
        for _ in range(TURNS):
            for what, both in calls.items():
                for which, found in durations(both, 2 * seconds / TURNS, time.perf_counter, **long).items():
                    times[what][which] += found
    images_more = {"an image each": threads}

    def gains(quantile: float) -> dict[str, float]:
        at = {what: [float(np.quantile(both[which], quantile)) for which in both] for what, both in times.items()}
        return {what: round(images_more.get(what, 1) * one / several, 3) for what, (one, several) in at.items()}

    return {"gains": gains(0.5), "fastest tenth": gains(0.1)}


def print_operators(name: str, pruned: float, threads: int) -> None:
    """Where the time of one image goes, with so much pruned; 0: without gates."""
    net, images = network(name)
    if pruned:
        net = gated_form(name, net, images)
        pruning(name)(net, images, 1 - pruned)
    print(NAMES[name], profile(compile(net, images[:1], threads=threads), images[:1], calls=50), sep="\n", flush=True)


def write_tables() -> None:
    every = list(read_results(RESULTS))
    lines = without_open_gates(every)
    for document in QUOTED:
        fill(document, "engine", engine_table(lines))
    fill(QUOTED[0], "zoo", zoo_table(every))
    fill(QUOTED[0], "threads", threads_table(read_results(THREADS)))
    write_figure(time_against_flops(lines), FIGURE)


def time_network(name: str, batch: int, arguments: argparse.Namespace) -> None:
    """One line of times, printed and appended."""
    config = config_of(arguments, batch, arguments.pruned or (OPEN_AND_HALF if name in zoo.NAMES else PRUNED))
    net, images = network(name)
    measured = bench(NAMES[name], net, gated_form(name, net, images), images, config, prune=pruning(name))
    for row in measured.rows:
        ratio = "" if row.of_best_dense is None else f"{row.of_best_dense:5.3f}"
        print(
            f"{NAMES[name]:20} batch {batch:<3} {row.what:20} kept {row.kept:5.3f} {row.ms:9.3f} ms/image  "
            f"of best dense {ratio}  of own dense {row.of_own_dense:5.3f}",
            flush=True,
        )
    print(*(f"{what} is left out: {why}" for what, why in measured.missing.items()), sep="\n", flush=True)
    if not arguments.print:
        append(RESULTS, line_of(measured, arguments.seconds))


def time_threads(name: str, batch: int, arguments: argparse.Namespace) -> None:
    """One line of what several threads gain, printed and appended."""
    case = {"network": NAMES[name], "batch": batch, "threads": arguments.threads}
    found = scaling(name, batch, arguments.threads, arguments.seconds)
    print(*case.values(), found, flush=True)
    if not arguments.print:
        append(THREADS, {**case, **found, "processor": processor(), "commit": commit()})


def options(
    description: str | None, names: Sequence[str] = tuple(NAMES), default: Sequence[str] = OWN
) -> argparse.ArgumentParser:
    """The options of a benchmark that times networks.

    ``description`` is what its help begins with, ``names`` are the networks, ``default`` those that are timed if none
    is named.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", nargs="+", choices=names, default=default)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--runtimes", nargs="*", default=None, help="names as in the table; all by default")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each thing measured")
    parser.add_argument("--core", type=int, default=None, help="pin to this core")
    parser.add_argument("--tables", action="store_true", help="measure nothing: only write tables and figures")
    parser.add_argument("--print", action="store_true", help="print only: no line, no tables")
    return parser


def config_of(
    arguments: argparse.Namespace, batch: int, pruned: Sequence[float], precision: str = "fp32"
) -> BenchConfig:
    """How a network is timed, from the options and what is pruned of it."""
    runtimes = None if arguments.runtimes is None else tuple(arguments.runtimes)
    return BenchConfig(
        batch=batch,
        pruned=tuple(pruned),
        seconds=arguments.seconds,
        runtimes=runtimes,
        core=arguments.core,
        precision=precision,
    )


def batches_of(name: str, arguments: argparse.Namespace) -> list[int]:
    """The batch sizes that a network is timed with; a large one only with the first."""
    return arguments.batch[:1] if name in LARGE else arguments.batch


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pruned", nargs="*", type=float, default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--operators", action="store_true", help="print each operator's time: no line, no tables")
    arguments = parser.parse_args()
    warnings.simplefilter("error", SlowWarning)  # a network that runs in torch is not what a row is to show
    for name in () if arguments.tables else arguments.network:
        if arguments.operators:
            print_operators(name, (arguments.pruned or [0.0])[0], arguments.threads)
            continue
        for batch in batches_of(name, arguments):
            (time_threads if arguments.threads > 1 else time_network)(name, batch, arguments)
    if not arguments.print and not arguments.operators:
        write_tables()


if __name__ == "__main__":
    main()
