"""Two studies of the core on CIFAR-10 with M-CifarNet, short enough for two processor cores.

    python benchmarks/study.py budgets      # is the budget met? 60, 35 and 22.5 %, from one dense network
    python benchmarks/study.py deviations   # `quick` with one option as the paper has it, one at a time

Each appends to results/<study>.jsonl and fills the tables that quote it; a row that is there already is not run again.
"""

import argparse
import time
from pathlib import Path
from typing import Any

from sanp.recipe import PRESETS, make_recipe, merge
from sanp.results import append, fill, read, result_line, study_table
from sanp.run import train

ROOT = Path(__file__).parents[1]
DENSE: dict[str, Any] = {"data": "cifar10", "limit": 10_000, "batch_size": 64, "test_every": 0}
EPOCHS = ("pretrain_epochs", "warmup_epochs", "joint_epochs")
SETTINGS: dict[str, dict[str, Any]] = {
    "budgets": merge(DENSE, {"fit": dict(zip(EPOCHS, (6, 1, 3), strict=True))}),
    "deviations": merge(DENSE, {"limit": 2_500, "batch_size": 32, "fit": dict(zip(EPOCHS, (6, 1, 4), strict=True))}),
}
QUOTED = {"budgets": ROOT / "README.md", "deviations": ROOT / "docs" / "deviations.md"}


def variants(study: str) -> dict[str, dict[str, Any]]:
    """Row name to the settings that are its own."""
    if study == "budgets":
        return {budget: {"budget": budget} for budget in ("60%", "35%", "22.5%")}
    found: dict[str, dict[str, Any]] = {"quick": {}}
    for section, settings in PRESETS["paper"].items():
        for name, value in settings.items() if isinstance(settings, dict) else ():
            if name not in EPOCHS:
                found[f"{section}.{name}"] = {section: {name: value}}
    # All together, but for as many epochs and steps as the other rows.
    fit = {key: value for key, value in PRESETS["paper"]["fit"].items() if key not in EPOCHS}
    found["paper"] = {**PRESETS["paper"], "fit": fit, "batch_size": SETTINGS["deviations"]["batch_size"]}
    return found


def main(study: str, folder: Path) -> None:
    results = ROOT / "results" / f"{study}.jsonl"
    done = {line["name"] for line in read(results)}
    dense = folder / "budgets" / "60%" / "dense.safetensors"
    for name, settings in variants(study).items():
        if name in done:
            continue
        start = {"pretrained": str(dense)} if dense.exists() else {}
        recipe = make_recipe(merge(merge(SETTINGS[study], settings), start))
        began = time.monotonic()
        finished = train(recipe, folder / study / name)
        append(results, result_line(name, recipe, finished, time.monotonic() - began))
        print(f"{name}: error {finished.pruned.error:.2%}, cost {finished.pruned.kept:.2%}", flush=True)
    fill(QUOTED[study], study, study_table(read(results)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=SETTINGS)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "study")
    main(**vars(parser.parse_args()))
