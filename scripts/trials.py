"""Trials of settings: the same number for every method, in a short schedule, judged on held-out training images.

    python scripts/trials.py                      # all trials of recipes/trials/m_cifarnet.toml, in its order
    python scripts/trials.py --methods ns sanp    # those of these methods only
    python scripts/trials.py --table              # what results/trials.jsonl has; runs nothing

A trial is a line in results/trials.jsonl with its own settings. A trial that is there with the same settings is not
run again, an interrupted one goes on. The test images are never read. The best settings of a method are put into its
recipes by hand, with the number of trials.
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanp.core.errors import SanpError
from sanp.experiments.compare import Job, carry_out
from sanp.experiments.metrics import Stopwatch, seconds_of
from sanp.experiments.paper.stale import flat_settings
from sanp.experiments.recipe import Recipe, make_recipe, merge, read_recipe
from sanp.experiments.results import append, read_results, result_line
from sanp.experiments.run_folder import MODEL, is_finished

ROOT = Path(__file__).parents[1]
RECIPES, RESULTS = ROOT / "recipes" / "trials", ROOT / "results" / "trials.jsonl"


@dataclass(frozen=True)
class Trial:
    """One trial: its name, the settings that are its own, and the whole recipe."""

    name: str
    own: dict[str, Any]
    recipe: Recipe


def read_trials(path: Path, dense: Path) -> list[Trial]:
    """The trials in the recipe file ``path``, which start from the network ``dense``.

    An error if methods have different numbers of trials, or if a trial would read the test images.
    """
    common = read_recipe(path)
    rows: list[dict[str, Any]] = common.pop("row", [])
    seen: Counter[str] = Counter()
    trials: list[Trial] = []
    for row in rows:
        recipe = make_recipe(merge(merge(common, row), {"pretrained": str(dense)}), str(path))
        if recipe.report_on != "held-out":
            raise SanpError(f"{path}: a trial would read the test images: set report_on to held-out")
        seen[recipe.method] += 1
        own = {name: value for name, value in row.items() if name != "method"}
        trials.append(Trial(f"{recipe.method}-{seen[recipe.method]}", own, recipe))
    if len(set(seen.values())) != 1:
        counts = ", ".join(f"{method} {count}" for method, count in seen.items())
        raise SanpError(f"{path}: {counts} trials: give every method the same number")
    return trials


def run_trials(trials: Iterable[Trial], dense: Job, folder: Path, results: Path) -> None:
    """Trains the dense network and carries out the trials that have no line yet, each in a folder of its own."""
    for trial in trials:
        if any(line["name"] == trial.name and line["trial"] == trial.own for line in read_results(results)):
            continue
        for job in (dense, Job(trial.recipe, folder / trial.name)):
            if not is_finished(job.folder):
                with Stopwatch(job.folder) as stopwatch:
                    carry_out(job, stopwatch)
        line = result_line(trial.name, job.folder, seconds_of(job.folder))
        append(results, {**line, "trial": trial.own})
        print(f"{trial.name} {trial.own}: {line['error']:.2%} at {line['kept']:.2%}", flush=True)


def trials_table(lines: Iterable[dict[str, Any]]) -> str:
    """A Markdown table of trials: error and cost on held-out images; the best trial of each method is bold."""
    every = sorted(lines, key=lambda line: (line["method"], line["error"]))
    rows = ["| method | settings | error (%) | cost (%) |", "|---|---|---|---|"]
    best: set[str] = set()
    for line in every:
        mark = "" if line["method"] in best else "**"
        best.add(line["method"])
        own = ", ".join(f"`{name} = {value}`" for name, value in flat_settings(line["trial"])) or "defaults"
        rows.append(f"| {line['method']} | {own} | {mark}{100 * line['error']:.2f}{mark} | {100 * line['kept']:.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=RECIPES / "m_cifarnet.toml")
    parser.add_argument("--dense", type=Path, default=RECIPES / "dense.toml")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "trials")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--table", action="store_true", help="print the table of the lines that are there")
    given = parser.parse_args()
    if not given.table:
        dense = Job(make_recipe(read_recipe(given.dense), str(given.dense)), given.folder / "dense")
        every = read_trials(given.recipe, dense.folder / MODEL)
        wanted = [trial for trial in every if given.methods is None or trial.recipe.method in given.methods]
        run_trials(wanted, dense, given.folder, given.results)
    print(trials_table(read_results(given.results)))
