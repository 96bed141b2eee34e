"""Three studies with M-CifarNet on digits, short enough for two processor cores.

    python benchmarks/study.py budgets          # is the budget met at 60, 35 and 22.5 %?
    python benchmarks/study.py deviations       # `quick` with one option as the paper has it, one at a time
    python benchmarks/study.py methods_digits   # every method to 50 % by `sanp train`, from one dense network

Each appends to results/<study>.jsonl and fills the tables that quote it; a row that is there already is not run again.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sanp.methods import METHODS
from sanp.recipe import PRESETS, make_recipe, merge
from sanp.results import append, fill, read, result_line, study_table
from sanp.run import train

ROOT = Path(__file__).parents[1]
EPOCHS = ("pretrain_epochs", "warmup_epochs", "joint_epochs")
SETTING: dict[str, Any] = {
    "batch_size": 16,
    "limit": 720,
    "test_every": 0,
    "fit": dict(zip(EPOCHS, (8, 1, 4), strict=True)),
}
SHORT = "--data digits --backbone m_cifarnet --limit 720 --batch-size 16 --test-every 0 --epochs 4,1,3".split()
QUOTED = {
    "budgets": ROOT / "README.md",
    "deviations": ROOT / "docs" / "deviations.md",
    "methods_digits": ROOT / "docs" / "methods.md",
}


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
    found["paper"] = {**PRESETS["paper"], "fit": fit, "batch_size": SETTING["batch_size"]}
    return found


def study_settings(study: str, folder: Path, results: Path, done: set[str]) -> None:
    dense = folder / "budgets" / "60%" / "dense.safetensors"  # the first row trains it, all others start from it
    for name, settings in variants(study).items():
        if name in done:
            continue
        start = {"pretrained": str(dense)} if dense.exists() else {}
        recipe = make_recipe(merge(merge(SETTING, settings), start))
        began = time.monotonic()
        finished = train(recipe, folder / study / name)
        append(results, result_line(name, finished.folder, time.monotonic() - began))
        print(f"{name}: error {finished.pruned.error:.2%}, cost {finished.pruned.kept:.2%}", flush=True)


def study_methods(folder: Path, results: Path, done: set[str]) -> None:
    dense = folder / "dense"
    command_line(dense, *SHORT, "--method", "dense", "--budget", "100%")
    start = ("--pretrained", str(dense / "model.safetensors"))
    for method in METHODS:
        if method in done or method == "dense":
            continue
        began = time.monotonic()
        command_line(folder / method, *SHORT, "--method", method, "--budget", "50%", *start)
        line = result_line(method, folder / method, time.monotonic() - began)
        append(results, line)
        print(f"{method}: error {line['error']:.2%}, cost {line['kept']:.2%}", flush=True)


def command_line(folder: Path, *options: str) -> None:
    """`sanp train` in a process of its own, or going on with what it began."""
    if (folder / "model.safetensors").exists():
        return
    begun = ("--resume", str(folder)) if (folder / "config.toml").exists() else (*options, "--out", str(folder))
    subprocess.run([sys.executable, "-m", "sanp", "train", *begun], check=True)


def main(study: str, folder: Path) -> None:
    results = ROOT / "results" / f"{study}.jsonl"
    done = {line["name"] for line in read(results)}
    if study == "methods_digits":
        study_methods(folder / study, results, done)
    else:
        study_settings(study, folder, results, done)
    fill(QUOTED[study], study, study_table(read(results)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=QUOTED)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "study")
    main(**vars(parser.parse_args()))
