"""Time of the networks that come with the package, by their own gates on test images; lines in results/trained.jsonl.

    python benchmarks/trained.py                                # all that have one budget, batches 1 and 64, one thread
    python benchmarks/trained.py --network resnet18-cifar10-33 --batch 1
    python benchmarks/trained.py --tables                       # measures nothing: prints the table of all lines

The dense network beside them has weights of chance, on which its time does not depend. int8 takes the ranges from the
same images, which does not matter for a time; `int8.py --accuracy` has its errors, by training images.
"""

from typing import Any

import torch

import engine
import sanp
from sanp.data import load
from sanp.engine.bench.bench import bench
from sanp.engine.bench.tables import trained_table
from sanp.experiments.inputs import read_inputs
from sanp.experiments.results import append, read_results
from sanp.experiments.shipped import of_one_budget, result_of, shipped

RESULTS = engine.ROOT / "results" / "trained.jsonl"
IMAGES = 128
"""test images whose decisions are timed, in turn"""


def time_network(name: str, batch: int, arguments: Any) -> dict[str, Any]:
    """A line: the shipped network in fp32 and in int8, beside every dense runtime."""
    inputs, result = read_inputs(shipped(name)), result_of(name)
    images = inputs.normalise(load(str(result["data"])).test.images[:IMAGES])
    torch.manual_seed(0)
    dense = sanp.backbones.BACKBONES[result["backbone"]](num_classes=inputs.num_classes).eval()
    fp32, int8 = (
        bench(name, dense, sanp.pretrained(name), images, engine.config_of(arguments, batch, (), precision))
        for precision in ("fp32", "int8")
    )
    line = engine.line_of(fp32, arguments.seconds)
    return {**line, "int8": int8.as_dict()["rows"], "error": result["error"], "dense_error": result["dense_error"]}


def main() -> None:
    parser = engine.options(__doc__, of_one_budget(), of_one_budget())
    arguments = parser.parse_args()
    for name in () if arguments.tables else arguments.network:
        for batch in arguments.batch:
            line = time_network(name, batch, arguments)
            print(trained_table([line]), flush=True)
            if not arguments.print:
                append(RESULTS, line)
    if arguments.tables:
        print(trained_table(read_results(RESULTS)))


if __name__ == "__main__":
    main()
