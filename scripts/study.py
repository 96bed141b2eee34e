"""Studies with M-CifarNet, short enough for two processor cores; all but the last on digits.

    python scripts/study.py budgets          # is the budget met at 60, 35 and 22.5 %?
    python scripts/study.py deviations       # `quick` with one option as the paper has it, one at a time
    python scripts/study.py methods_digits   # every method to 50 % by `sanp train`, from one dense network
    python scripts/study.py adaptiveness     # on CIFAR-10 at 25 %, three seeds, from the shipped dense network:
                                                # does it pay that channels depend on the image?

Each appends to results/<study>.jsonl and fills the tables that quote it; a row that is there already is not run again,
and one that was stopped goes on.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sanp.experiments import run_folder
from sanp.experiments.compare import Job, carry_out
from sanp.experiments.documents import fill, study_table
from sanp.experiments.metrics import Stopwatch, seconds_of
from sanp.experiments.paper.channel_use import channel_use
from sanp.experiments.paper.rows import same_work
from sanp.experiments.recipe import PRESETS, make_recipe, merge
from sanp.experiments.results import append, read_results, result_line
from sanp.experiments.seeds import mean_and_deviation
from sanp.methods import METHODS

ROOT = Path(__file__).parents[1]
EPOCHS = ("pretrain_epochs", "warmup_epochs", "joint_epochs")
STEPS = ("batch_size",)
"""settings besides the epochs that say how many steps there are"""
SETTING: dict[str, Any] = {
    "batch_size": 16,
    "limit": 720,
    "test_every": 0,
    "fit": dict(zip(EPOCHS, (8, 1, 4), strict=True)),
}
SHORT = "--data digits --backbone m_cifarnet --limit 720 --batch-size 16 --test-every 0 --epochs 4,1,3".split()
QUOTED = {
    "budgets": ROOT / "docs" / "results.md",
    "deviations": ROOT / "docs" / "deviations.md",
    "methods_digits": ROOT / "docs" / "methods.md",
    "adaptiveness": ROOT / "docs" / "results.md",
}
# The budget of FBS's row, from one dense network, each method with its own defaults. The batches are small: a thousand
# joint steps of few images.
ADAPTIVENESS: dict[str, Any] = {
    "data": "cifar10",
    "backbone": "m_cifarnet",
    "budget": "25%",
    "batch_size": 32,
    "test_every": 0,
    "fit": {**dict(zip(EPOCHS, (0, 1, 4), strict=True)), "dropout": 0.0, "lr": 0.025},
}
CONTENDERS: dict[str, dict[str, Any]] = {
    "sanp": {},
    "static": {"method": "static"},
    "fixed_k": {"method": "fixed_k"},
    "fbs": {"method": "fbs"},
    "sanp-noise": {"fit": {"settle": 0.3}},
    "sanp-plain-descriptors": {"spm": {"standardize": False}},
    "sanp-centre-1": {"spm": {"centre": 1.0}},
    "fixed_k-centre-1": {"method": "fixed_k", "spm": {"centre": 1.0}},
}


def variants(study: str) -> dict[str, dict[str, Any]]:
    """Row name to the settings that are its own."""
    if study == "budgets":
        return {budget: {"budget": budget} for budget in ("60%", "35%", "22.5%")}
    paper, methods = PRESETS["paper"], [name for name in PRESETS["paper"] if name in METHODS]
    plain = {name: value for name, value in paper.items() if not isinstance(value, dict) and name not in STEPS}
    found: dict[str, dict[str, Any]] = {"quick": {}, **{name: {name: value} for name, value in plain.items()}}
    for section, settings in paper.items():
        for name, value in settings.items() if isinstance(settings, dict) else ():
            if name not in EPOCHS and section not in methods:
                found[f"{section}.{name}"] = {section: {name: value}}
    # All together, but for as many epochs and steps as the other rows.
    fit = {key: value for key, value in paper["fit"].items() if key not in EPOCHS}
    common = {name: value for name, value in paper.items() if name not in methods}
    found["paper"] = {**common, "fit": fit, **{name: SETTING[name] for name in STEPS}}
    for method in methods:  # an option of another method, beside that method as it is in `quick`
        found[method] = {"method": method}
        for name, value in paper[method].items():
            found[f"{method}.{name}"] = {"method": method, method: {name: value}}
    return found


def study_settings(study: str, folder: Path, results: Path, done: set[str]) -> None:
    dense = folder / "budgets" / "60%" / "dense.safetensors"  # its first row trains it, all others start from it
    if study != "budgets" and not dense.exists():
        raise SystemExit("run the study budgets first: every row starts from the dense network that it trains")
    for name, settings in variants(study).items():
        if name in done:
            continue
        start = {"pretrained": str(dense)} if dense.exists() else {}
        recipe = make_recipe(merge(merge(SETTING, settings), start))
        job = Job(recipe, folder / study / name)
        if not job.finished:
            with Stopwatch(job.folder) as stopwatch:
                carry_out(job, stopwatch)
        line = result_line(name, job.folder, seconds_of(job.folder))
        append(results, line)
        print(f"{name}: error {line['error']:.2%}, cost {line['kept']:.2%}", flush=True)


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


def study_adaptiveness(
    folder: Path,
    results: Path,
    dense: str,
    images: int,
    seeds: Iterable[int],
    names: Iterable[str] = CONTENDERS,
    setting: dict[str, Any] = ADAPTIVENESS,
) -> None:
    """The named contenders from one dense network, once a seed; a run that was interrupted is gone on with."""
    for seed in seeds:
        for name in names:
            own = CONTENDERS[name]
            common = merge(setting, {"seed": seed, "limit": images, "pretrained": dense})
            job = Job(make_recipe(merge(common, own)), folder / f"{name}-{images}-seed{seed}")
            if any(line["name"] == name and same_work(line, job.recipe) for line in read_results(results)):
                continue
            if not (job.folder / "model.safetensors").is_file():
                with Stopwatch(job.folder) as stopwatch:
                    carry_out(job, stopwatch)
            dataset = run_folder.load_data(job.recipe)
            network = run_folder.load_run(job.folder, dataset)
            used = channel_use(network, run_folder.evaluation_batches(dataset), dataset.num_classes)
            line = result_line(name, job.folder, seconds_of(job.folder))
            append(results, {**line, "depends_deeper_half": used.depends_deeper_half})
            told = f"cost {line['kept']:.2%}, {used.depends_deeper_half:.0%} depend on the image"
            print(f"{name}, seed {seed}: error {line['error']:.2%}, {told}", flush=True)


def adaptiveness_table(lines: Iterable[dict[str, Any]]) -> str:
    """Means over the seeds and standard deviations, a row a contender and length of training."""
    groups: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: list(CONTENDERS).index(line["name"])):
        groups.setdefault((line["name"], line["images"], sum(line["epochs"])), []).append(line)
    if not groups:
        return "No run is finished yet."
    rows = [
        "| | images, epochs | seeds | error (%) | cost (%) | channels that depend on the image (%) |",
        "|---|---|---|---|---|---|",
    ]
    for (name, images, epochs), group in groups.items():
        shown = (
            mean_and_deviation([100 * line[key] for line in group]) for key in ("error", "kept", "depends_deeper_half")
        )
        rows.append(f"| {name} | {images:,}, {epochs} | {len(group)} | {' | '.join(shown)} |")
    return "\n".join(rows)


def main(study: str, folder: Path, dense: str, images: int, seeds: list[int], contenders: list[str]) -> None:
    results = ROOT / "results" / f"{study}.jsonl"
    if study == "adaptiveness":
        study_adaptiveness(folder / study, results, dense, images, seeds, contenders)
        fill(QUOTED[study], study, adaptiveness_table(read_results(results)))
        return
    done = {line["name"] for line in read_results(results)}
    if study == "methods_digits":
        study_methods(folder / study, results, done)
    else:
        study_settings(study, folder, results, done)
    fill(QUOTED[study], study, study_table(read_results(results)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=QUOTED)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "study")
    parser.add_argument(
        "--dense", default="m_cifarnet-cifar10", help="adaptiveness: what to start from, a name or file"
    )
    parser.add_argument("--images", type=int, default=8_000, help="adaptiveness: training images")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="adaptiveness: one run of each a seed")
    parser.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="adaptiveness: the rows to make"
    )
    main(**vars(parser.parse_args()))
