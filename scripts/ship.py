"""Puts a finished run's network into the package, in half precision: `sanp.pretrained(NAME)`.

Channels that no training image opens are closed for good, and their weights are not written; with --rarely, also those
that no more than this share of the training images opens.

    python scripts/ship.py runs/table1-m_cifarnet-sanp-16.1.11 m_cifarnet-cifar10-22
    python scripts/ship.py runs/table1-vgg19-sanp-32.1.12 vgg19-cifar10-34 --rarely 0.001

What was written is loaded again and evaluated; if its accuracy is not the run's own within 0.05 points it is refused.
"""

import argparse
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sanp import data
from sanp.checkpoint import save
from sanp.core.errors import SanpError
from sanp.evaluation import Report, evaluate
from sanp.experiments import run_folder
from sanp.experiments.inputs import inputs_of, keep_inputs
from sanp.experiments.paper.contents import TABLES
from sanp.experiments.results import read_results
from sanp.experiments.shipped import WEIGHTS
from sanp.gating.network import GatedNetwork

ROOT = Path(__file__).parents[1]
SAME = 0.0005
"""how far the accuracy may move"""


def ship(folder: Path, name: str, *, results: Path, into: Path = WEIGHTS, rarely: float = 0.0) -> Report:
    """Writes the network, its inputs, report and results line; gives what the evaluation of the file found."""
    before, recipe = run_folder.read_report(folder), run_folder.read_run(folder)
    line = line_of(before, results, folder)
    dataset = run_folder.load_data(recipe)
    into.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into) as place:
        made = Path(place) / name
        made.mkdir()
        dense = recipe.pretrained and Path(*Path(recipe.pretrained).parts[-2:]).as_posix()  # no place on one machine
        (made / "config.toml").write_text(replace(recipe, pretrained=dense or None).as_toml(), encoding="utf-8")
        shutil.copy(folder / "metrics.jsonl", made)
        keep_inputs(made, inputs_of(dataset))
        network = run_folder.load_run(folder, dataset)
        if isinstance(network, GatedNetwork) and network.dial is None:
            images = data.Batches(dataset.train, 250, mean=dataset.mean, std=dataset.std)
            network.zero_unused(images, rarely=rarely)
        save(network, made / "model.safetensors", dtype=torch.float16)
        after = evaluate(run_folder.load_run(made, dataset), run_folder.evaluation_batches(dataset))
        if abs(after.accuracy - before["accuracy"]) > SAME + 1e-12:
            raise SanpError(
                f"{name} in half precision is right for {after.accuracy:.2%} of the images, the run in {folder} for "
                f"{before['accuracy']:.2%}: they may differ by {SAME:.2%}; nothing was written"
            )
        found = {"format": run_folder.REPORT_FORMAT, **after.as_dict(), "dense": before["dense"]}
        (made / "report.json").write_text(json.dumps(found), encoding="utf-8")
        (made / "result.json").write_text(json.dumps(line), encoding="utf-8")
        shutil.rmtree(into / name, ignore_errors=True)
        made.rename(into / name)
    return after


def line_of(report: dict[str, Any], results: Path, folder: Path) -> dict[str, Any]:
    """The results line that this report gave."""
    for file in ("dense", "dial", *TABLES):
        for line in read_results(results / f"{file}.jsonl"):
            if all(line.get(key) == report[key] for key in ("error", "flops", "paper_flops", "dense_flops")):
                return line
    raise SanpError(f"{folder} has no line in {results}: sanp reproduce adds it when the run is finished")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--rarely", type=float, default=0.0, help="share of the training images")
    given = parser.parse_args()
    report = ship(given.run, given.name, results=given.results, rarely=given.rarely)
    size = (WEIGHTS / given.name / "model.safetensors").stat().st_size
    print(f"{WEIGHTS / given.name}: {size / 1e6:.2f} MB, error {report.error:.2%}, {report.flops / 1e6:.2f} M FLOPs")
