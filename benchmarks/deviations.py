"""Measures what each difference between the presets does: `quick` with one option as the paper has it, one at a time.

    python benchmarks/deviations.py [--folder DIR]

M-CifarNet on 5,000 images of CIFAR-10, all from one dense network, one warm-up and three joint epochs to 35 %; appends
to results/deviations.jsonl, which docs/deviations.md quotes. A row that is there already is not run again.
"""

import argparse
import time
from pathlib import Path
from typing import Any

from sanp.recipe import PRESETS, make_recipe, merge
from sanp.results import append, read, result_line
from sanp.run import train

RESULTS = Path(__file__).parents[1] / "results" / "deviations.jsonl"
SETTING: dict[str, Any] = {
    "data": "cifar10",
    "limit": 5000,
    "budget": "35%",
    "batch_size": 64,
    "test_every": 0,
    "fit": {"pretrain_epochs": 8, "warmup_epochs": 1, "joint_epochs": 3},
}
EPOCHS = ("pretrain_epochs", "warmup_epochs", "joint_epochs")
TOGETHER = {"batch_size": 64}  # the same number of steps for every row


def variants() -> dict[str, dict[str, Any]]:
    """Name to settings: quick, each option of the paper alone, and the paper's all together."""
    found: dict[str, dict[str, Any]] = {"quick": {}}
    for section, settings in PRESETS["paper"].items():
        if not isinstance(settings, dict):
            continue
        for name, value in settings.items():
            if name not in EPOCHS:
                found[f"{section}.{name}"] = {section: {name: value}}
    paper = {key: value for key, value in PRESETS["paper"].items() if key not in TOGETHER}
    fit = {key: value for key, value in paper["fit"].items() if key not in EPOCHS}
    found["paper"] = {**paper, "fit": fit}
    return found


def main(folder: Path) -> None:
    done = {line["name"] for line in read(RESULTS)}
    dense = folder / "quick" / "dense.safetensors"
    for name, settings in variants().items():
        if name in done:
            continue
        start = {} if name == "quick" else {"pretrained": str(dense)}
        recipe = make_recipe(merge(merge(SETTING, settings), start))
        began = time.monotonic()
        finished = train(recipe, folder / name)
        append(RESULTS, result_line(name, recipe, finished, time.monotonic() - began))
        print(f"{name}: error {finished.pruned.error:.2%}, cost {finished.pruned.kept:.2%}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/deviations"))
    main(parser.parse_args().folder)
