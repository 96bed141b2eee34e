"""Two studies of the core with M-CifarNet on digits, short enough for two processor cores.

    python benchmarks/study.py budgets      # is the budget met at 60, 35 and 22.5 %?
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
EPOCHS = ("pretrain_epochs", "warmup_epochs", "joint_epochs")
SETTING: dict[str, Any] = {
    "batch_size": 16,
    "limit": 720,
    "test_every": 0,
    "fit": dict(zip(EPOCHS, (8, 1, 4), strict=True)),
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
    found["paper"] = {**PRESETS["paper"], "fit": fit, "batch_size": SETTING["batch_size"]}
    return found


def main(study: str, folder: Path) -> None:
    results = ROOT / "results" / f"{study}.jsonl"
    done = {line["name"] for line in read(results)}
    rows = variants(study)
    dense = folder / "budgets" / "60%" / "dense.safetensors"  # the first row trains it, all others start from it
    for name, settings in rows.items():
        if name in done:
            continue
        start = {"pretrained": str(dense)} if dense.exists() else {}
        recipe = make_recipe(merge(merge(SETTING, settings), start))
        began = time.monotonic()
        finished = train(recipe, folder / study / name)
        append(results, result_line(name, finished.folder, time.monotonic() - began))
        print(f"{name}: error {finished.pruned.error:.2%}, cost {finished.pruned.kept:.2%}", flush=True)
    fill(QUOTED[study], study, study_table(read(results)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=QUOTED)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "study")
    main(**vars(parser.parse_args()))
