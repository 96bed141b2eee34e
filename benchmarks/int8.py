"""int8: time beside fp32 and OpenVINO's int8, and what the shipped networks lose; lines in results/int8*.jsonl.

python benchmarks/int8.py                         # all networks, batches 1 and 64, one pinned thread
python benchmarks/int8.py --network m_cifarnet --batch 1 --runtimes OpenVINO "OpenVINO int8"
python benchmarks/int8.py --accuracy              # error on the whole test set, in fp32 and in int8
python benchmarks/int8.py --tables                # measures nothing: tables from the lines
"""

import argparse

import torch
from torch import Tensor

import engine
import sanp
from sanp.data import load
from sanp.engine import compile
from sanp.engine.bench.bench import bench
from sanp.engine.bench.images import random_images
from sanp.engine.bench.tables import int8_table
from sanp.engine.quantise.loss import loss_of
from sanp.engine.quantise.samples import FEWEST
from sanp.experiments.documents import fill
from sanp.experiments.inputs import read_inputs
from sanp.experiments.results import append, commit, read_results
from sanp.experiments.shipped import of_one_budget, result_of, shipped

TIMES = engine.ROOT / "results" / "int8.jsonl"
ERRORS = engine.ROOT / "results" / "int8_accuracy.jsonl"
DOCUMENT = engine.ROOT / "docs" / "engine.md"
PRUNED = (0.5, 0.67)
CALIBRATION = 512
"""training images that ranges are found from"""
DECISIONS = 500
"""test images whose decisions are compared"""


def time_network(name: str, batch: int, arguments: argparse.Namespace) -> None:
    """One line of times, printed and appended."""
    config = engine.config_of(arguments, batch, arguments.pruned, "int8")
    net, images = engine.network(name)
    if len(images) < FEWEST:
        images = random_images(tuple(images.shape[1:]), FEWEST, seed=5)
    gated = engine.gated_form(name, net, images)
    measured = bench(engine.NAMES[name], net, gated, images, config, prune=engine.pruning(name))
    rival = next((row.ms for row in measured.rows if row.what == "OpenVINO int8"), float("nan"))
    for row in measured.rows:
        ratio = float("nan") if row.of_best_dense is None else row.of_best_dense
        print(
            f"{engine.NAMES[name]:20} batch {batch:<3} {row.what:20} kept {row.kept:5.3f} {row.ms:9.3f} ms/image  "
            f"of best dense fp32 {ratio:5.3f}  of OpenVINO's int8 {row.ms / rival:5.3f}",
            flush=True,
        )
    if not arguments.print:
        append(TIMES, engine.line_of(measured, arguments.seconds))


def measure_accuracy(name: str) -> dict[str, object]:
    """The errors of a shipped network on the whole test set of its data, in fp32 and in int8.

    Ranges come from training images, taken in one fixed random order.
    """
    inputs, network = read_inputs(shipped(name)), sanp.pretrained(name)
    data = load(str(result_of(name)["data"]))
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))[:CALIBRATION]
    calibration = inputs.normalise(data.train.take(order).images)
    fp32 = compile(network, calibration[:8])
    int8 = compile(network, calibration[:8], precision="int8", calibration=calibration)
    images, labels = data.test.images, data.test.labels
    wrong = {"fp32": 0, "int8": 0}
    same, seen = 0.0, 0

    def count(which: str, found: Tensor, first: int) -> None:
        wrong[which] += int((found.argmax(1) != labels[first : first + len(found)]).sum())

    for first in range(0, len(images), 250):
        x = inputs.normalise(images[first : first + 250])
        count("fp32", fp32(x), first)
        count("int8", int8(x), first)
        if first < DECISIONS:
            loss = loss_of(int8, network, x)
            same, seen = same + loss.decisions * loss.samples, seen + loss.samples
    errors = {which: 100 * number / len(images) for which, number in wrong.items()}
    return {
        "network": name,
        "test_images": len(images),
        "calibration_images": CALIBRATION,
        "error": errors,
        "decisions": same / seen,
        "commit": commit(),
    }


def accuracy_table() -> str:
    """A Markdown table of the errors; of several lines with one network the last counts."""
    newest = {line["network"]: line for line in read_results(ERRORS)}
    table = ["| | error in fp32 | error in int8 | decisions as in fp32 |", "|---|---|---|---|"]
    for name, line in newest.items():
        error = line["error"]
        table.append(f"| {name} | {error['fp32']:.2f} % | {error['int8']:.2f} % | {line['decisions']:.2%} |")
    return "\n".join(table)


def write_tables() -> None:
    fill(DOCUMENT, "int8", int8_table(read_results(TIMES)))
    fill(DOCUMENT, "int8 accuracy", accuracy_table())


def main() -> None:
    parser = engine.options(__doc__)
    parser.add_argument("--pruned", nargs="*", type=float, default=PRUNED, help="shares of the FLOPs")
    parser.add_argument("--accuracy", action="store_true", help="measure the errors of all shipped networks, no times")
    arguments = parser.parse_args()
    if arguments.accuracy:
        for name in of_one_budget():
            line = measure_accuracy(name)
            print(line, flush=True)
            if not arguments.print:
                append(ERRORS, line)
    elif not arguments.tables:
        for name in arguments.network:
            for batch in engine.batches_of(name, arguments):
                time_network(name, batch, arguments)
    if not arguments.print:
        write_tables()


if __name__ == "__main__":
    main()
