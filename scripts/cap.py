"""What a cap on each image costs in accuracy: a run's network under several caps, as a line of results/cap.jsonl.

python scripts/cap.py m_cifarnet-cifar10-22            # evaluates the network on all test images and fills docs/dial.md
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from sanp.core.errors import SanpError
from sanp.evaluation import evaluate
from sanp.experiments import run_folder
from sanp.experiments.budgeted import training_images
from sanp.experiments.documents import fill, table_of_rows
from sanp.experiments.results import append, read_results, result_line
from sanp.experiments.shipped import run_named
from sanp.gating.network import GatedNetwork
from sanp.report.fast_look import error_and_kept

ROOT = Path(__file__).parents[1]
TORCH_IMAGES = 500
"""test images whose cost is counted in torch too"""


def points(network: GatedNetwork, dataset: Any, caps: list[str]) -> list[dict[str, Any]]:
    """Test error, mean cost and the dearest image without a cap and under each, by the engine; the dearest of the first
    images by torch."""
    usual, found = training_images(dataset)(), []
    few = next(iter(run_folder.evaluation_batches(dataset, TORCH_IMAGES)))
    for cap in (None, *caps):
        network.set_max_flops(cap, usual)
        error, kept = error_and_kept(network, run_folder.evaluation_batches(dataset))
        in_torch = evaluate(network, [few], progress=False).per_sample.max() / network.dense_flops
        reached = {"error": error, "kept": float(kept.mean()), "most": float(kept.max())}
        found.append({"cap": cap, **reached, "most_in_torch": float(in_torch), "images": len(kept)})
        print(json.dumps(found[-1]), flush=True)
    return found


def table(line: dict[str, Any]) -> str:
    """The points of a results line as a Markdown table."""
    found = line["points"]
    return table_of_rows(
        {
            "`max_flops`": [each["cap"] or "none" for each in found],
            "error (%)": [f"{100 * each['error']:.2f}" for each in found],
            "mean cost (%)": [f"{100 * each['kept']:.2f}" for each in found],
            "dearest image (%)": [f"{100 * each['most']:.2f}" for each in found],
        }
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--caps", default="24%,23%,22%")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    given = parser.parse_args()
    start, folder = time.time(), run_named(given.run)
    images = run_folder.load_data(run_folder.read_run(folder))
    pruned = run_folder.load_run(folder, images).eval()
    if not isinstance(pruned, GatedNetwork):
        raise SanpError(f"{given.run} holds no gated network, so that its cost cannot be capped")
    measured = points(pruned, images, given.caps.split(","))
    line = result_line("cap", folder, time.time() - start)
    append(given.results / "cap.jsonl", {**line, "points": measured})
    if given.results == ROOT / "results":
        fill(ROOT / "docs" / "dial.md", "cap", table(list(read_results(given.results / "cap.jsonl"))[-1]))
